"""Passes as items of the kernel that makes them (``emit.cu``)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from accel.ops.index import Index
from accel.ops.resample import rows_first
from accel.planning.stages import Axis, Pass

from .descriptors import COLUMNS_FIRST, COPY, ROWS_FIRST, STAGE, TILE
from .program import Pixels, Program
from .weights import Job


class Output(NamedTuple):
    """Where a pass writes, and how."""

    place: int
    table: int
    itemsize: int
    planar: bool


def parts(stage: Pass) -> list[Pass]:
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


def lower(program: Program, level: int, pixels: Pixels, stage: Pass, out: Output) -> None:
    """Add a pass to a program. Where it resamples, it sees the pixels as they are."""
    assert not (stage.resample and pixels.seen), "a resampling looks up no levels"
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
            *(pixels.place, origin, out.place, out.table, fills, pixels.seen, *axes, height, width),
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
