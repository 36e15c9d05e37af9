"""Lowering a plan to a schedule of kernel launches: pure data, made without pixels or a device.

Stage by stage the images of a batch run together: an image's stage at level n is one item of a launch for all images
that have a stage of that kind there, whatever its parameters. The last stages of all images, which write to the result,
are one launch; so the number of launches is that of the longest chain, whatever was drawn for each image. Between two
stages pixels are uint8 in scratch memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from accel.backends.cuda import effects, passes
from accel.backends.cuda.coefficients import sizes_of
from accel.backends.cuda.descriptors import LINES, PATCH, Region, packer, place
from accel.backends.cuda.passes import Output
from accel.backends.cuda.schedule import Pixels, Schedule
from accel.ops.resample import part
from accel.planning.plan import Decode, Item, Plan, bits
from accel.planning.stages import Effect, Pass, Stage
from accel.planning.values import Patch


def schedule_of(plan: Plan, sources: Sequence[int | None]) -> Schedule:
    """Make the schedule that runs a plan.

    Args:
        plan: what to run.
        sources: for every decode the address of its pixels if they are on the device already, else None.
    """
    schedule = Schedule()
    itemsize, planar = plan.dtype.itemsize, not plan.interleaved
    bytes_each = plan.shape[1] * plan.shape[2] * plan.shape[3] * itemsize
    result = place(Region.RESULT, 0)
    level = 1
    last: list[tuple[Pixels, Pass, Output]] = []
    patched: list[tuple[tuple[Patch, ...], Output]] = []
    for wanted, address in zip(plan.decodes, sources, strict=True):
        _, _, height, width = wanted.box
        where = schedule.upload.take(height * width * wanted.channels) if address is None else address
        schedule.pixels.append(where)
        for item in wanted.items:
            out = Output(result + item.position * bytes_each, _value_table(schedule, item), itemsize, planar)
            reached, pixels, stage = _before_last(schedule, Pixels(where, height, width, wanted.channels), item.stages)
            last.append((pixels, stage, out))
            level = max(level, reached)
            if item.patches:
                patched.append((item.patches, out))
    for pixels, stage, out in last:
        passes.add_pass(schedule, level, pixels, stage, out)
    for patches, out in patched:
        for number, patch in enumerate(patches):
            _add_patch(schedule, level + 1 + number, patch, plan.shape[1:], out)
    return schedule


def device_bytes(wanted: Decode) -> int:
    """The approximate memory that a source and its images take on the device, without the result."""
    _, _, height, width = wanted.box
    total = height * width * wanted.channels
    for item in wanted.items:
        total += sum(patch.values.nbytes for patch in item.patches)
        channels = wanted.channels
        for stage in item.stages:
            if isinstance(stage, Effect):
                total += effects.sent_bytes(stage)
                channels = stage.output_channels
            height, width = stage.output_size
            total += height * width * channels
            if isinstance(stage, Pass) and stage.resample:
                for axis in (stage.rows, stage.columns):
                    resampled = part(axis.extent, axis.view.length)
                    total += sizes_of(*resampled, stage.resample, axis.size, axis.window.length)[1]
    return total


def _before_last(schedule: Schedule, pixels: Pixels, stages: tuple[Stage, ...]) -> tuple[int, Pixels, Pass]:
    """Add all stages of an item but the last.

    Returns:
        The level at which the last stage may run, its input, and the stage.
    """
    units: list[Stage] = []
    for number, stage in enumerate(stages):
        if isinstance(stage, Effect):
            units.append(stage)
        elif number or len(stages) == 1 or stage._replace(levels=None).changes((pixels.height, pixels.width)):
            units += passes.parts(stage)
        else:  # at most a look-up
            pixels = pixels._replace(lut=schedule.send_lut(stage.levels))
    last = units.pop()
    assert isinstance(last, Pass)
    level, buffers = 1, [(0, 0), (0, 0)]  # two places and sizes, used in turns; replaced if a result is larger

    def take(size: int) -> int:
        """The place of ``size`` bytes that the next stage does not read."""
        buffer = buffers.pop(0)
        buffers.append(buffer if size <= buffer[1] else (schedule.scratch.take(size), size))
        return buffers[-1][0]

    for stage in units:
        if isinstance(stage, Effect):
            level, pixels = effects.add_effect(schedule, level, pixels, stage, take)
        else:
            level, pixels = _looked_up(schedule, level, pixels, stage)
            height, width = stage.output_size
            result = take(height * width * pixels.channels)
            out = Output(result, schedule.send_lut(stage.levels), 1, planar=False)
            passes.add_pass(schedule, level, pixels, stage, out)
            level, pixels = level + 1, Pixels(result, height, width, pixels.channels)
    level, pixels = _looked_up(schedule, level, pixels, last)
    return level, pixels, last


def _looked_up(schedule: Schedule, level: int, pixels: Pixels, stage: Pass) -> tuple[int, Pixels]:
    """The level and pixels for a pass; if it resamples, pixels are looked up first."""
    if not (pixels.lut and stage.resample):
        return level, pixels
    result = schedule.scratch.take(pixels.height * pixels.width * pixels.channels)
    return level + 1, effects.add_look_up(schedule, level, pixels, result)


def _value_table(schedule: Schedule, item: Item) -> int:
    """The place of an item's value table, composed with the lookup table of its last pass if that has one."""
    table, levels = item.table, item.stages[-1].levels

    def content() -> list[npt.NDArray[Any]]:
        values = bits(table)
        return [values if levels is None else np.take_along_axis(values, levels.astype(np.intp), 1)]

    return schedule.send((id(table), id(levels)), table.nbytes, content)


def _add_patch(schedule: Schedule, level: int, patch: Patch, shape: tuple[int, ...], out: Output) -> None:
    values = patch.values.contiguous()
    if not (values.numel() and patch.height and patch.width):
        return
    given = schedule.send((id(patch.values), "patch"), values.nbytes, lambda: [bits(values)])
    lines = patch.height * (shape[0] if out.planar else 1)
    launch = schedule.launch(level, "patch", PATCH)
    row = _packed(
        *(out.place, given, *shape, patch.top, patch.left, patch.height, patch.width),
        *(*values.shape[1:], out.itemsize, out.planar, launch.total),
    )
    launch.add(row, -(-lines // LINES))


_packed = packer(PATCH)
