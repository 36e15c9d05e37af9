"""Lowering passes to items of the kernel that runs them (``passes.cu``)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from accel.backends.cuda.coefficients import CoefficientJob
from accel.backends.cuda.descriptors import MODES, PASS, TILE_COLUMNS, TILE_ROWS, packer
from accel.backends.cuda.schedule import Pixels, Schedule
from accel.backends.shared.identity_cache import IdentityCache
from accel.backends.shared.index_maps import onto_view, through
from accel.ops.index import Index
from accel.ops.resample import part, rows_first
from accel.planning.stages import Axis, Pass


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
    row = _packed(
        *(where, origin, out.place, out.table, fills, lut, *axes),
        *(height, width, launch.total, across, out.itemsize, out.planar, MODES[mode], 0),
    )
    launch.add(row, -(-height // TILE_ROWS) * across)


_packed = packer(PASS)


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
