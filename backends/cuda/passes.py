"""Passes as items of the kernel that makes them (``emit.cu``)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from accel.ops.index import Index
from accel.ops.resample import rows_first
from accel.planning.stages import Axis, Pass

from .descriptors import COLUMNS_FIRST, COPY, ROWS_FIRST, STAGE, TILE_COLUMNS, TILE_ROWS, packer
from .program import Pixels, Program
from .weights import Job


class Output(NamedTuple):
    """Where a pass writes, and how."""

    place: int
    table: int
    itemsize: int
    planar: bool


def is_whole(stage: Pass) -> bool:
    """Whether the kernel makes it at once."""
    return not stage.resample or (stage.rows.view.table is None and stage.columns.view.table is None)


def parts(stage: Pass) -> list[Pass]:
    """A stage whose view is listed (padding before a resize) as two: the view, and the rest on that."""
    if is_whole(stage):
        return [stage]
    rows, columns = _viewed(stage.rows.view), _viewed(stage.columns.view)
    view = Pass(rows, columns, 0, stage.fills)
    rest = stage._replace(rows=_whole(stage.rows), columns=_whole(stage.columns))
    return [view, rest]


def _viewed(view: Index) -> Axis:
    return Axis(view, view.length, Index.identity(view.length))


def _whole(axis: Axis) -> Axis:
    return axis._replace(view=Index.identity(axis.view.length))


class _Copied(NamedTuple):
    """A pass whose positions are those of its input: which one each position of the output shows."""

    stage: Pass
    rows: Index
    columns: Index


def lower(program: Program, level: int, pixels: Pixels, stage: Pass, out: Output) -> None:
    """Add a pass to a program. Where it resamples, it sees the pixels as they are."""
    where, _, width_in, channels, seen = pixels
    rows, columns = stage.rows, stage.columns
    height, width = rows.window.length, columns.window.length
    fills = _fills(program, stage, channels) if stage.fills else 0
    pitch = width_in * channels
    spans = (rows.window.span(), columns.window.span()) if stage.resample else ()
    if spans and all(first < last for first, last in spans):
        assert not seen, "a resampling looks up no levels"
        first = rows_first(stage.resample, rows.view.length, columns.view.length, rows.size, columns.size)
        mode = ROWS_FIRST if first and rows.resampled and columns.resampled else COLUMNS_FIRST
        origin = rows.view.start * pitch + columns.view.start * channels
        axes = (
            *_resampled(program, rows, stage.resample, spans[0], rows.view.step * pitch),
            *_resampled(program, columns, stage.resample, spans[1], columns.view.step * channels),
        )
    else:
        mode, origin = COPY, 0
        _, shown_rows, shown_columns = _copied(stage)
        axes = (*_shown(program, shown_rows, pitch), *_shown(program, shown_columns, channels))
    across = -(-width // TILE_COLUMNS)
    launch = program.launch(level, _KERNELS[channels], STAGE)
    row = _packed(
        *(where, origin, out.place, out.table, fills, seen, *axes),
        *(height, width, launch.total, across, out.itemsize, out.planar, mode, 0),
    )
    launch.add(row, -(-height // TILE_ROWS) * across)


_KERNELS = {1: "emit1", 3: "emit3"}
_packed = packer(STAGE)


def _fills(program: Program, stage: Pass, channels: int) -> int:
    fills = stage.fills
    return program.send((fills, channels), len(fills) * channels, lambda: [np.array(fills, np.uint8)])


def _resampled(program: Program, axis: Axis, code: int, span: tuple[int, int], stride: int) -> tuple[int, ...]:
    window = axis.window
    first, last = span
    bounds, weights = program.weights(Job(code, axis.view.length, axis.size, first, last - first))
    return _window(program, window), bounds, weights, stride, window.start, window.step, first, last - first


def _shown(program: Program, shown: Index, stride: int) -> tuple[int, ...]:
    return _window(program, shown), 0, 0, stride, shown.start, shown.step, 0, 0


def _window(program: Program, window: Index) -> int:
    table = window.table
    if table is None:
        return 0
    return program.send((id(table), "window"), table.nbytes, lambda: [table])


def _copied(stage: Pass) -> _Copied:
    """Remembered with the stage: those behind the first one are often the same for many images."""
    found = _known.get(id(stage))
    if found is None or found.stage is not stage:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        found = _known[id(stage)] = _Copied(stage, _through(stage.rows, stage), _through(stage.columns, stage))
    return found


_known: dict[int, _Copied] = {}
_MOST_KNOWN = 4096


def _through(axis: Axis, stage: Pass) -> Index:
    view, window = axis.view, axis.window
    if stage.resample:  # only fill is shown
        return window
    if view.table is None and window.table is None:
        return Index(view.start + view.step * window.start, view.step * window.step, window.length)
    codes = window.array()
    return Index.listed(np.where(codes < 0, codes, view.array()[np.maximum(codes, 0)]))
