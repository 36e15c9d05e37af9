"""Lowering a plan to a schedule of kernel launches: pure data, made without pixels or a device.

Stage by stage the images of a batch run together: an image's stage at level n is one item of a launch for all images
that have a stage of that kind there, whatever its parameters. The last stages of all images, which write to the result,
are one launch; so the number of launches is that of the longest chain, whatever was drawn for each image. Between two
stages pixels are uint8 in scratch memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.backends.cuda import effects
from accel.backends.cuda.descriptors import (
    LINES,
    MODES,
    PASS,
    PATCH,
    TILE_COLUMNS,
    TILE_ROWS,
    packer,
    place,
)
from accel.backends.cuda.regions import Region
from accel.backends.cuda.schedule import CoefficientJob, Pixels, Schedule, sizes_of
from accel.backends.shared.identity_cache import IdentityCache
from accel.backends.shared.index_maps import onto_view, through
from accel.ops.index import Index
from accel.ops.resample import part, rows_first
from accel.planning.plan import Decode, Item, Plan, bits
from accel.planning.stages import Axis, Effect, Pass, Stage
from accel.planning.values import Patch


def schedule_of(plan: Plan, sources: npt.NDArray[np.uint64]) -> Schedule:
    """Make the schedule that runs a plan.

    Args:
        plan: what to run.
        sources: for every decode the place of its pixels if they are on the device already, else 0.
    """
    schedule = Schedule()
    itemsize, planar = plan.dtype.itemsize, not plan.interleaved
    bytes_each = plan.shape[1] * plan.shape[2] * plan.shape[3] * itemsize
    result = place(Region.RESULT, 0)
    level = 1
    last: list[tuple[Pixels, Pass, Output]] = []
    patched: list[tuple[tuple[Patch, ...], Output]] = []
    for wanted, address in zip(plan.decodes, sources.tolist(), strict=True):
        _, _, height, width = wanted.box
        where = schedule.upload.take(height * width * wanted.channels) if address == 0 else address
        schedule.pixels.append(where)
        for item in wanted.items:
            out = Output(result + item.position * bytes_each, _value_table(schedule, item), itemsize, planar)
            reached, pixels, stage = _before_last(schedule, Pixels(where, height, width, wanted.channels), item.stages)
            last.append((pixels, stage, out))
            level = max(level, reached)
            if item.patches:
                patched.append((item.patches, out))
    for pixels, stage, out in last:
        add_pass(schedule, level, pixels, stage, out)
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


def sent_bytes(wanted: Decode) -> int:
    """The approximate bytes that are sent to the device for a source's images: descriptors, tables and coefficients."""
    total = 0
    for item in wanted.items:
        total += item.table.nbytes + sum(patch.values.nbytes + PATCH.itemsize for patch in item.patches)
        for stage in item.stages:
            height, width = stage.output_size
            total += 1024 + 8 * (height + width) + 4 * (height // TILE_ROWS + 1) * (width // TILE_COLUMNS + 1)
            if isinstance(stage, Effect):
                total += effects.sent_bytes(stage) + height * width // 256
            elif stage.resample:
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
            units += parts(stage)
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
            add_pass(schedule, level, pixels, stage, out)
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
    row = _packed_patch(
        *(out.place, given, *shape, patch.top, patch.left, patch.height, patch.width),
        *(*values.shape[1:], out.itemsize, out.planar, launch.total),
    )
    launch.add(row, -(-lines // LINES))


_packed_patch = packer(PATCH)


# -- passes -----------------------------------------------------------------------------------------------


class Output(NamedTuple):
    """The place that a pass writes to, and the layout there."""

    place: int
    table: int
    itemsize: int
    planar: bool


def is_whole(stage: Pass) -> bool:
    """Whether the kernel can run a pass in one item."""
    return not stage.resample or (stage.rows.view.table is None and stage.columns.view.table is None)


def parts(stage: Pass) -> list[Pass]:
    """Split a stage whose view is listed (padding before a resize) in two: the view, and the rest on that."""
    if is_whole(stage):
        return [stage]
    rows, columns = map(Axis.as_it_is, (stage.rows.view, stage.columns.view))
    return [Pass(rows, columns, 0, stage.fills), onto_view(stage)]


def add_pass(schedule: Schedule, level: int, pixels: Pixels, stage: Pass, out: Output) -> None:
    """Add a pass to a schedule. If it resamples, its input must not need a look-up."""
    where, _, width_in, channels, lut = pixels
    rows, columns = stage.rows, stage.columns
    height, width = rows.window.length, columns.window.length
    fills, colours = 0, stage.fills
    if colours:
        fills = schedule.send((colours, channels), len(colours) * channels, lambda: [np.array(colours, np.uint8)])
    pitch = width_in * channels
    spans = (rows.window.span(), columns.window.span()) if stage.resample else ()
    if spans and all(first < last for first, last in spans):
        assert not lut, "a resampling looks nothing up"
        first = rows_first(stage.resample, rows.view.length, columns.view.length, rows.size, columns.size)
        mode = "ROWS_FIRST" if first and rows.resampled and columns.resampled else "COLUMNS_FIRST"
        origin = rows.view.start * pitch + columns.view.start * channels
        axes = (
            *_resampled(schedule, rows, stage.resample, spans[0], rows.view.step * pitch),
            *_resampled(schedule, columns, stage.resample, spans[1], columns.view.step * channels),
        )
    else:
        mode, origin = "COPY", 0
        shown_rows, shown_columns = _copied_once(stage)
        axes = (*_shown(schedule, shown_rows, pitch), *_shown(schedule, shown_columns, channels))
    across = -(-width // TILE_COLUMNS)
    launch = schedule.launch(level, f"pass{channels}", PASS)
    row = _packed_pass(
        *(where, origin, out.place, out.table, fills, lut, *axes),
        *(height, width, launch.total, across, out.itemsize, out.planar, MODES[mode], 0),
    )
    launch.add(row, -(-height // TILE_ROWS) * across)


_packed_pass = packer(PASS)


def _resampled(schedule: Schedule, axis: Axis, code: int, span: tuple[int, int], stride: int) -> tuple[int, ...]:
    window = axis.window
    first, last = span
    job = CoefficientJob(*part(axis.extent, axis.view.length), code, axis.view.length, axis.size, first, last - first)
    bounds, coefficients = schedule.coefficients(job)
    return _window(schedule, window), bounds, coefficients, stride, window.start, window.step, first, last - first


def _shown(schedule: Schedule, shown: Index, stride: int) -> tuple[int, ...]:
    return _window(schedule, shown), 0, 0, stride, shown.start, shown.step, 0, 0


def _window(schedule: Schedule, window: Index) -> int:
    table = window.table
    if table is None:
        return 0
    return schedule.send((id(table), "window"), table.nbytes, lambda: [table])


def _copied(stage: Pass) -> tuple[Index, Index]:
    """The positions of the input that each position of the output shows."""
    axes = stage.rows, stage.columns  # a pass that resamples comes here only if it shows nothing but fill
    rows, columns = (axis.window if stage.resample else through(axis.view, axis.window) for axis in axes)
    return rows, columns


_copied_once = IdentityCache(_copied, 4096)
"""Remembered, as stages behind the first one are often the same for many images."""
