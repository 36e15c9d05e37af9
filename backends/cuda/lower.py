"""A plan as a program of kernel launches: pure data, made without looking at a pixel or a device.

Stage by stage the images of a batch run together: what an image has at level n is one item of a launch for all images
that have a stage of that kind there, whatever its parameters. The last stages of all images, which write to the
result, are one launch; so the number of launches is that of the longest chain, whatever was drawn for each image.
Between two stages there are uint8 pixels in scratch memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import cycle
from typing import NamedTuple

import numpy as np

from accel.planning.levels import composed
from accel.planning.plan import Decode, Item, Plan
from accel.planning.stages import Effect, Levels, Pass, Stage
from accel.planning.values import Patch

from ..cpu.stages import bits
from . import effects, passes
from .descriptors import LINES, PATCH, Region, place
from .passes import Output
from .program import Pixels, Program
from .weights import Job


def lower(plan: Plan, sources: Sequence[int | None]) -> Program:
    """The program of a plan.

    Args:
        plan: what to run.
        sources: for every decode the address of pixels that are on the device already, or None.
    """
    program = Program()
    itemsize = plan.dtype.itemsize
    bytes_each = plan.shape[1] * plan.shape[2] * plan.shape[3] * itemsize
    level, last_passes, patched = 1, [], []
    for wanted, address in zip(plan.decodes, sources, strict=True):
        _, _, height, width = wanted.box
        where = program.upload.take(height * width * wanted.channels) if address is None else address
        program.pixels.append(where)
        for item in wanted.items:
            chain = _Chain(program, Pixels(where, height, width, wanted.channels), item.stages)
            target = place(Region.RESULT, item.position * bytes_each)
            out = Output(target, _table(program, item), itemsize, not plan.interleaved)
            last_passes.append(partial(passes.lower, program, pixels=chain.pixels, stage=chain.last, out=out))
            level = max(level, chain.level)
            patched.append((item.patches, out))
    for last in last_passes:
        last(level)
    for patches, out in patched:
        for number, patch in enumerate(patches):
            _lower_patch(program, level + 1 + number, patch, plan.shape[1:], out)
    return program


def missing(wanted: Decode) -> str | None:
    """The first op on a source's images that has no kernel here; None where all have."""
    for item in wanted.items:
        for stage in item.stages:
            if isinstance(stage, Effect) and not effects.on_device(stage):
                return stage.op
    return None


def device_bytes(wanted: Decode) -> int:
    """About how much memory one source and what is made of it take on the device, the result left out."""
    _, _, height, width = wanted.box
    total = height * width * wanted.channels
    for item in wanted.items:
        total += sum(patch.values.nbytes for patch in item.patches)
        channels = wanted.channels
        for stage in item.stages:
            if isinstance(stage, Effect):
                total += effects.sent_bytes(stage)
                channels = stage.output_channels
            total += stage.output_size[0] * stage.output_size[1] * channels
            if isinstance(stage, Pass):
                for axis in (stage.rows, stage.columns):
                    total += 4 * Job(stage.resample, axis.view.length, axis.size, 0, axis.window.length).weights_length
    return total


class _Unit(NamedTuple):
    """A stage that is launched; ``levels``: what becomes of its result's levels."""

    stage: Stage
    levels: Levels | None


class _Chain:
    """The stages of one item but the last, lowered.

    Attributes:
        level: what comes next may run at.
        pixels: what it reads.
        last: the pass that it is.
    """

    def __init__(self, program: Program, pixels: Pixels, stages: tuple[Stage, ...]) -> None:
        self._program = program
        self.level, self.pixels = 1, pixels
        *before, last = stages
        assert isinstance(last, Pass)
        *parts, self.last = passes.parts(last)
        first, units = _units((*before, *parts), (pixels.height, pixels.width))
        if first is not None:
            self.pixels = pixels._replace(seen=program.levels_of(first))
        rooms = _Rooms(program, units, pixels.channels)
        for unit in units:
            self._lower(unit, rooms)
        if self.last.resample:
            self._look_up()

    def _lower(self, unit: _Unit, rooms: _Rooms) -> None:
        stage, program = unit.stage, self._program
        if isinstance(stage, Effect):
            self.pixels = effects.lower(program, self.level, self.pixels, stage, unit.levels, rooms.next)
        else:
            if stage.resample:
                self._look_up()
            out = Output(rooms.next(), program.levels_of(unit.levels), 1, planar=False)
            passes.lower(program, self.level, self.pixels, stage, out)
            self.pixels = Pixels(out.place, *stage.output_size, self.pixels.channels)
        self.level += 1

    def _look_up(self) -> None:
        """Have the levels through which the pixels are seen looked up: a resampling sees the pixels themselves."""
        if self.pixels.seen:
            room = self._program.scratch.take(self.pixels.height * self.pixels.width * self.pixels.channels)
            self.pixels = effects.look_up(self._program, self.level, self.pixels, room)
            self.level += 1


def _units(stages: Sequence[Stage], size: tuple[int, int]) -> tuple[Levels | None, list[_Unit]]:
    """What is launched of these stages on pixels of a size, and the levels through which the first one sees them.

    Passes that only look up levels are part of what comes before them.
    """
    first: Levels | None = None
    units: list[_Unit] = []
    for stage in stages:
        if isinstance(stage, Effect):
            units.append(_Unit(stage, stage.levels))
        elif stage._replace(levels=None).changes(size):
            parts = passes.parts(stage)
            units += [_Unit(part, part.levels) for part in parts]
        elif units:
            units[-1] = _Unit(units[-1].stage, composed(units[-1].levels, stage.levels))
        else:
            first = composed(first, stage.levels)
        size = stage.output_size
    return first, units


class _Rooms:
    """Two buffers, written in turns by the units of one chain."""

    def __init__(self, program: Program, units: list[_Unit], channels: int) -> None:
        sizes: list[int] = []
        for stage, _ in units:
            if isinstance(stage, Effect):
                channels = stage.output_channels
                if stage.kind == "statistic":  # its result is a table
                    continue
            sizes.append(stage.output_size[0] * stage.output_size[1] * channels)
        self._places = cycle([program.scratch.take(max(part)) for part in (sizes[::2], sizes[1::2]) if part])

    def next(self) -> int:
        """The one that whoever writes next does not read."""
        return next(self._places)


def _table(program: Program, item: Item) -> int:
    """The place of the values of an item's last pass: of its levels, where the pass has some."""
    table, last = item.table, item.stages[-1]
    assert isinstance(last, Pass)
    if last.levels is None:
        return program.send(id(table), table.nbytes, lambda: [bits(table)])
    order = last.levels.astype(np.intp)
    key = id(table), id(last.levels)
    return program.send(key, table.nbytes, lambda: [np.take_along_axis(bits(table), order, 1)])


def _lower_patch(program: Program, level: int, patch: Patch, shape: tuple[int, ...], out: Output) -> None:
    values = patch.values.contiguous()
    if not values.numel():
        return
    given = program.send((id(patch.values), "patch"), values.nbytes, lambda: [bits(values)])
    lines = patch.height * (shape[0] if out.planar else 1)
    launch = program.launch(level, "patch", PATCH)
    launch.add(
        (
            *(out.place, given, *shape, patch.top, patch.left, patch.height, patch.width),
            *(*values.shape[1:], out.itemsize, out.planar, launch.total),
        ),
        -(-lines // LINES),
    )
