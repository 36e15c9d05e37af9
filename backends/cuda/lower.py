"""A plan as a program of kernel launches: pure data, made without looking at a pixel or a device.

Stage by stage the images of a batch run together: launch number n makes every image's n-th pass, whatever its size,
filter and window. Between two passes there are uint8 pixels in scratch memory; an image's last pass writes to the
result. Addresses are places (``descriptors``) until memory is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.ops.index import Index
from accel.ops.resample import rows_first
from accel.planning.plan import Decode, Item, Plan
from accel.planning.stages import Axis, Effect, Pass

from ..cpu.stages import bits
from .descriptors import COLUMNS_FIRST, COPY, ROWS_FIRST, STAGE, TILE, WEIGH, Region, place
from .weights import Job, made_on_host

_ALIGNED = 64


class Arena:
    """Offsets in a region of memory, handed out one after another."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.size = 0

    def take(self, size: int) -> int:
        """The place of ``size`` bytes."""
        offset = self.size
        self.size += (size + _ALIGNED - 1) // _ALIGNED * _ALIGNED
        return place(self.region, offset)


class Launch:
    """One kernel over a list of items, each of one or more blocks."""

    def __init__(self, kernel: str, dtype: np.dtype[Any]) -> None:
        self.kernel = kernel
        self.dtype = dtype
        self.rows: list[tuple[Any, ...]] = []
        self.blocks: list[int] = []
        self.total = 0

    def add(self, row: tuple[Any, ...], blocks: int = 1) -> None:
        self.rows.append(row)
        self.blocks.append(blocks)
        self.total += blocks

    def items(self) -> npt.NDArray[Any]:
        return np.array(self.rows, self.dtype)

    def owners(self) -> npt.NDArray[np.int32]:
        """The item of every block."""
        return np.repeat(np.arange(len(self.rows), dtype=np.int32), self.blocks)


class Sent(NamedTuple):
    """Something the host sends: where it goes, and what it is, once somebody asks (it may be work)."""

    place: int
    content: Callable[[], Sequence[npt.NDArray[Any]]]


class Program:
    """What runs a plan: the memory it takes, what is sent, and the launches in order.

    Attributes:
        pixels: where each of the plan's decodes goes, in order.
        upload, scratch: the sizes of these regions.
    """

    def __init__(self) -> None:
        self.upload, self.scratch = Arena(Region.UPLOAD), Arena(Region.SCRATCH)
        self.pixels: list[int] = []
        self.sent: list[Sent] = []
        self.levels: list[dict[str, Launch]] = []
        self._known: dict[Any, int] = {}

    def launch(self, level: int, kernel: str, dtype: np.dtype[Any]) -> Launch:
        """The launch of a kernel at a level, which runs when the levels below are done."""
        while len(self.levels) <= level:
            self.levels.append({})
        found = self.levels[level].get(kernel)
        if found is None:
            found = self.levels[level][kernel] = Launch(kernel, dtype)
        return found

    def send(self, key: Any, size: int, content: Callable[[], Sequence[npt.NDArray[Any]]]) -> int:
        """The place of ``size`` bytes that the host makes and sends, once for every ``key``."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self.upload.take(size)
            self.sent.append(Sent(found, content))
        return found

    def weights(self, job: Job) -> tuple[int, int]:
        """The places of an axis' bounds and weights."""
        found = self._known.get(job)
        bounds_size = (4 * job.bounds_length + _ALIGNED - 1) // _ALIGNED * _ALIGNED
        if found is not None:
            return found, found + bounds_size
        size = bounds_size + 4 * job.weights_length
        if job.on_host:
            found = self.send(job, size, lambda: _padded(made_on_host(job), bounds_size))
        else:
            found = self._known[job] = self.scratch.take(size)
            self.launch(0, "weigh", WEIGH).add((found, found + bounds_size, *job, 0))
        return found, found + bounds_size


def _padded(arrays: tuple[npt.NDArray[Any], npt.NDArray[Any]], size: int) -> Sequence[npt.NDArray[Any]]:
    bounds, weights = arrays
    gap = np.zeros(size - bounds.nbytes, np.uint8)
    return bounds, gap, weights


class Output(NamedTuple):
    """Where a pass writes, and how."""

    place: int
    table: int
    itemsize: int
    planar: bool


class Input(NamedTuple):
    """Pixels, uint8 [height, width, channels], interleaved and dense."""

    place: int
    height: int
    width: int
    channels: int


def lower(plan: Plan, sources: Sequence[int | None]) -> Program:
    """The program of a plan.

    Args:
        plan: what to run.
        sources: for every decode the address of pixels that are on the device already, or None.
    """
    program = Program()
    itemsize = plan.dtype.itemsize
    bytes_each = plan.shape[1] * plan.shape[2] * plan.shape[3] * itemsize
    for wanted, address in zip(plan.decodes, sources, strict=True):
        _, _, height, width = wanted.box
        where = program.upload.take(height * width * wanted.channels) if address is None else address
        program.pixels.append(where)
        for item in wanted.items:
            target = place(Region.RESULT, item.position * bytes_each)
            out = Output(target, _table(program, item), itemsize, not plan.interleaved)
            _lower_item(program, Input(where, height, width, wanted.channels), item, out)
    return program


def has_kernels_for(plan: Plan) -> bool:
    """Whether there are kernels for all of it: passes alone, and no patches."""
    items = [item for wanted in plan.decodes for item in wanted.items]
    return not any(item.patches or any(isinstance(stage, Effect) for stage in item.stages) for item in items)


def passes(item: Item) -> list[Pass]:
    """The stages of an item that are passes."""
    return [stage for stage in item.stages if isinstance(stage, Pass)]


def device_bytes(wanted: Decode) -> int:
    """About how much memory one source and what is made of it take on the device, the result left out."""
    _, _, height, width = wanted.box
    total = height * width * wanted.channels
    for item in wanted.items:
        for stage in passes(item):
            total += stage.output_size[0] * stage.output_size[1] * wanted.channels
            for axis in (stage.rows, stage.columns):
                total += 4 * Job(stage.resample, axis.view.length, axis.size, 0, axis.window.length).weights_length
    return total


def _table(program: Program, item: Item) -> int:
    """The place of the values of an item's last pass: of its levels, where the pass has some."""
    table, levels = item.table, passes(item)[-1].levels
    if levels is None:
        return program.send(id(table), table.nbytes, lambda: [bits(table)])
    order = levels.astype(np.intp)
    return program.send((id(table), id(levels)), table.nbytes, lambda: [np.take_along_axis(bits(table), order, 1)])


def _levels(program: Program, stage: Pass) -> int:
    levels = stage.levels
    return 0 if levels is None else program.send((id(levels), "levels"), levels.nbytes, lambda: [levels])


def _lower_item(program: Program, pixels: Input, item: Item, out: Output) -> None:
    stages = [part for stage in passes(item) for part in _parts(stage, program)]
    level = 1  # after the weights
    for stage in stages[:-1]:
        height, width = stage.output_size
        room = program.scratch.take(height * width * pixels.channels)
        between = Output(room, _levels(program, stage), 1, planar=False)
        _lower_stage(program, level, pixels, stage, between)
        pixels = Input(between.place, height, width, pixels.channels)
        level += 1
    _lower_stage(program, level, pixels, stages[-1], out)


def _parts(stage: Pass, program: Program) -> list[Pass]:
    """A stage whose view is listed (padding before a resize) as two: the view, and the rest on that."""
    if not stage.resample or (stage.rows.view.table is None and stage.columns.view.table is None):
        return [stage]
    rows, columns = _viewed(stage.rows.view), _viewed(stage.columns.view)
    view = Pass(rows, columns, 0, stage.fills)
    rest = stage._replace(rows=_whole(stage.rows), columns=_whole(stage.columns))
    return [view, rest]


def _viewed(view: Index) -> Axis:
    return Axis(view, view.length, Index.identity(view.length))


def _whole(axis: Axis) -> Axis:
    return axis._replace(view=Index.identity(axis.view.length))


def _lower_stage(program: Program, level: int, pixels: Input, stage: Pass, out: Output) -> None:
    height, width = stage.output_size
    across = -(-width // TILE)
    launch = program.launch(level, f"emit{pixels.channels}", STAGE)
    fills = 0
    if stage.fills:
        fills = program.send(
            (stage.fills, pixels.channels),
            len(stage.fills) * pixels.channels,
            lambda: [np.array(stage.fills, np.uint8)],
        )
    pitch, strides = pixels.width * pixels.channels, (pixels.width * pixels.channels, pixels.channels)
    rows, columns = stage.rows, stage.columns
    spans = rows.window.span(), columns.window.span()
    if stage.resample and all(first < last for first, last in spans):
        first = rows_first(stage.resample, rows.view.length, columns.view.length, rows.size, columns.size)
        both = rows.resampled and columns.resampled
        mode = ROWS_FIRST if first and both else COLUMNS_FIRST
        origin = rows.view.start * pitch + columns.view.start * pixels.channels
        axes = [
            _resampled(program, axis, stage.resample, span, axis.view.step * stride)
            for axis, span, stride in zip((rows, columns), spans, strides, strict=True)
        ]
    else:
        mode, origin = COPY, 0
        if stage.resample:  # only fill is shown
            rows, columns = (axis._replace(view=Index.identity(axis.size)) for axis in (rows, columns))
        axes = [_copied(program, axis, stride) for axis, stride in zip((rows, columns), strides, strict=True)]
    launch.add(
        (
            *(pixels.place, origin, out.place, out.table, fills, *axes, height, width),
            *(launch.total, across, out.itemsize, out.planar, mode, 0),
        ),
        -(-height // TILE) * across,
    )


def _resampled(program: Program, axis: Axis, code: int, span: tuple[int, int], stride: int) -> tuple[int, ...]:
    job = Job(code, axis.view.length, axis.size, span[0], span[1] - span[0])
    bounds, weights = program.weights(job)
    window = axis.window
    return _window(program, window), bounds, weights, stride, window.start, window.step, job.first, job.shown


def _copied(program: Program, axis: Axis, stride: int) -> tuple[int, ...]:
    """An axis whose positions are those of the input."""
    view, window = axis.view, axis.window
    if view.table is None and window.table is None:
        shown = Index(view.start + view.step * window.start, view.step * window.step, window.length)
    else:
        codes = window.array()
        shown = Index.listed(np.where(codes < 0, codes, view.array()[np.maximum(codes, 0)]))
    return _window(program, shown), 0, 0, stride, shown.start, shown.step, 0, 0


def _window(program: Program, window: Index) -> int:
    table = window.table
    if table is None:
        return 0
    return program.send((id(table), "window"), table.nbytes, lambda: [table])
