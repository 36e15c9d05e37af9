"""Lowering a plan of rows to a schedule: the descriptors of all images at once, column by column.

``lowering`` does the same for plans of single recipes. In a batch of crops that are resized, images differ only in
numbers; it takes two launches.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL.Image import Resampling

from accel.backends.cuda.descriptors import (
    COEFFICIENT_JOB,
    MODES,
    PASS,
    TILE_COLUMNS,
    TILE_ROWS,
    Region,
    place,
)
from accel.backends.cuda.schedule import ALIGNED, Schedule
from accel.ops.resample import SUPPORT
from accel.planning.column_fields import LENGTH, SIZE, START, STEP, WINDOW, WINDOW_STEP
from accel.planning.columns import ColumnPlan, Columns
from accel.planning.plan import bits
from accel.recipes.rows import Numbers

_NARROW = 1 << 16  # longer than any side of a file


def accepts(plan: ColumnPlan) -> bool:
    """Whether a plan can be lowered here: coefficients are computed on the device, and sizes are below ``_NARROW``."""
    columns = plan.columns
    on_host = columns.resample & 7 in (Resampling.LANCZOS, Resampling.HAMMING)
    return not on_host and int(columns.axes[..., [LENGTH, SIZE]].max()) < _NARROW and max(plan.shape[2:]) < _NARROW


def schedule_of(plan: ColumnPlan, sources: npt.NDArray[np.uint64]) -> Schedule:
    """``lowering.schedule_of`` for a plan that it ``accepts``."""
    schedule, columns = Schedule(), plan.columns
    count, channels, height, width = plan.shape
    itemsize, planar = plan.dtype.itemsize, not plan.interleaved
    schedule.pixels = sources.tolist()
    for number in np.flatnonzero(sources == 0).tolist():
        schedule.pixels[number] = schedule.upload.take(int(columns.boxes[number, 2:].prod()) * channels)
    items = np.zeros(count, PASS)
    items["source"] = schedule.pixels
    bytes_each = channels * height * width * itemsize
    items["target"] = place(Region.RESULT, 0) + np.arange(count, dtype=np.uint64) * bytes_each
    table, colour = bits(columns.table), columns.fill
    items["table"] = schedule.send("table", table.nbytes, lambda: [table])
    if colour is not None:
        items["fills"] = schedule.send("fills", channels, lambda: [np.array(colour, np.uint8)])
    items["height"], items["width"], items["itemsize"], items["planar"] = height, width, itemsize, planar
    items["across"] = across = -(-width // TILE_COLUMNS)
    blocks = -(-height // TILE_ROWS) * across
    items["first_block"] = np.arange(count) * blocks
    spans = [_span(axis, length) for axis, length in zip(columns.axes, (height, width), strict=True)]
    resampled = columns.resampled.any(0) & (spans[0][1] > spans[0][0]) & (spans[1][1] > spans[1][0])
    rows_first = columns.rows_first & columns.resampled.all(0)
    modes = np.where(rows_first, MODES["ROWS_FIRST"], MODES["COLUMNS_FIRST"])
    items["mode"] = np.where(resampled, modes, MODES["COPY"])
    pitch = columns.boxes[:, 3] * channels
    strides = pitch, np.full(count, channels)
    origins = [axis[:, START] * stride for axis, stride in zip(columns.axes, strides, strict=True)]
    items["origin"] = np.where(resampled, sum(origins), 0)
    for name, axis, stride, shown in zip(("rows", "columns"), columns.axes, strides, (height, width), strict=True):
        windows = _describe(items[name], axis, stride, shown, resampled, listed=colour is not None)
        if windows is not None:
            where = schedule.send((name, "windows"), windows.nbytes, partial(list, (windows,)))
            items[name]["window"] = where + np.arange(count, dtype=np.uint64) * windows.strides[0]
    _resample(schedule, items, columns, spans, np.flatnonzero(resampled))
    schedule.launch(1, f"pass{channels}", PASS).add_all(items, np.full(count, blocks))
    return schedule


def _span(axis: Numbers, shown: int) -> tuple[Numbers, Numbers]:
    """The half-open range of positions that each window shows."""
    first = axis[:, WINDOW]
    last = first + axis[:, WINDOW_STEP] * (shown - 1)
    return np.maximum(np.minimum(first, last), 0), np.minimum(np.maximum(first, last) + 1, axis[:, SIZE])


def _describe(
    items: npt.NDArray[Any],
    axis: Numbers,
    stride: Numbers,
    shown: int,
    resampled: npt.NDArray[np.bool_],
    *,
    listed: bool,
) -> npt.NDArray[np.int32] | None:
    """Set the fields of an axis: the positions shown, of the input itself if nothing is resampled.

    Returns the positions one by one, with fill codes, if they are to be ``listed``; else None.
    """
    start, step = axis[:, WINDOW], axis[:, WINDOW_STEP]
    through = axis[:, START] + axis[:, STEP] * start, axis[:, STEP] * step
    items["stride"] = np.where(resampled, axis[:, STEP], 1) * stride
    if not listed:
        items["start"], items["step"] = np.where(resampled, start, through[0]), np.where(resampled, step, through[1])
        return None
    positions = start[:, None] + step[:, None] * np.arange(-(-shown // _ENTRIES) * _ENTRIES)
    outside = (positions < 0) | (positions >= axis[:, SIZE, None])
    of_input = axis[:, START, None] + axis[:, STEP, None] * positions
    items["step"] = 1
    windows: npt.NDArray[np.int32] = np.where(outside, -1, np.where(resampled[:, None], positions, of_input)).astype(
        np.int32
    )
    return windows


_ENTRIES = ALIGNED // 4


def _resample(
    schedule: Schedule, items: npt.NDArray[Any], columns: Columns, spans: Any, which: npt.NDArray[np.intp]
) -> None:
    """Add the coefficients of the images that are resampled; axes that are resampled alike share them."""
    if len(which) == 0:
        return
    both = [
        np.stack([axis[which, LENGTH], axis[which, SIZE], first[which], (last - first)[which]])
        for axis, (first, last) in zip(columns.axes, spans, strict=True)
    ]
    jobs = np.concatenate(both, 1)
    keys = jobs.astype(np.uint64)
    _, own, number = np.unique(
        keys[0] << np.uint64(48) | keys[1] << np.uint64(32) | keys[2] << np.uint64(16) | keys[3],
        return_index=True,
        return_inverse=True,
    )
    length, size, first, shown = jobs[:, own]
    bounds, whole = _sizes_of(length, columns.resample, size, shown)
    taking = -(-whole // ALIGNED) * ALIGNED
    start = schedule.scratch.take(int(taking.sum()))
    places = np.uint64(start) + (np.cumsum(taking) - taking).astype(np.uint64)
    made = np.zeros(len(own), COEFFICIENT_JOB)
    made["bounds"], made["coefficients"] = places, places + bounds.astype(np.uint64)
    made["span"] = made["length"] = length
    made["resample"], made["size"], made["first"], made["count"] = columns.resample, size, first, shown
    schedule.launch(0, "coefficients", COEFFICIENT_JOB).add_all(made, np.ones(len(own), np.int64))
    for name, of_axis in zip(("rows", "columns"), number.reshape(2, -1), strict=True):
        axis = items[name]
        for field in ("bounds", "coefficients", "first", "count"):
            axis[field][which] = made[field][of_axis]


def device_bytes(plan: ColumnPlan) -> Numbers:
    """``lowering.device_bytes`` for every image."""
    columns, (_, channels, height, width) = plan.columns, plan.shape
    total = (columns.boxes[:, 2] * columns.boxes[:, 3] + height * width) * channels
    resampled = columns.resampled.any(0)
    for axis, shown in zip(columns.axes, (height, width), strict=True):
        total = total + resampled * _sizes_of(axis[:, LENGTH], columns.resample, axis[:, SIZE], shown)[1]
    return total


def _sizes_of(length: Numbers, code: int, size: Numbers, shown: Any) -> tuple[Any, Any]:
    """``coefficients.sizes_of`` for axes that are resampled as a whole."""
    scale = np.maximum(length / size, 1.0)
    taps = np.where(length == size, 1, np.ceil(SUPPORT.get(code & 7, 0) * scale).astype(np.int64) * 2 + 1)
    bounds = -(-4 * (2 * shown + 1) // ALIGNED) * ALIGNED
    return bounds, bounds + 4 * taps * shown
