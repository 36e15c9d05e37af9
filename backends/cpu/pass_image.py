"""The fused pass of one image: the part of it that is needed, its workspace, and the passes in order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from accel.backends.cpu.pass_blocks import PROOF_SIZE, stands_in, write_blocks
from accel.backends.cpu.pass_columns import pays, shrink_columns, tile_size, weights_size
from accel.backends.cpu.pass_dots import groups_memory, resize_by_dots
from accel.backends.cpu.pass_resize import copy_rows, padded, resize_columns, resize_row
from accel.backends.cpu.pass_rows import gather_line, longest_run, shown, write_run
from accel.backends.cpu.simd import LANES
from accel.backends.shared.coefficient_kernels import compute, known, memory_size, most_taps, taps


@njit
def _needed(length: int, begin: float, span: float, size: int, window: Any, resample: int) -> Any:
    """The part of an axis that is needed: the lowest code, the range of resampled positions, that of view positions.

    Both ranges are half-open, and empty if all is fill.
    """
    lowest, first, stop = shown(window)
    if first == stop or not _resampled(begin, span, size):
        return lowest, first, stop, first, stop
    low, _ = taps(resample, length, begin, span, size, first)
    return lowest, first, stop, low, taps(resample, length, begin, span, size, stop - 1)[1]


@njit
def _resampled(begin: float, span: float, size: int) -> Any:
    return begin != 0.0 or span != size


@njit
def _inside(start: int, step: int, first: int, stop: int, extent: int) -> Any:
    """Whether view positions ``first <= p < stop`` read source positions below ``extent``."""
    ends = start + step * first, start + step * (stop - 1)
    return first == stop or (abs(step) == 1 and min(ends) >= 0 and max(ends) < extent)


@njit
def _room(count: int, wanted: bool) -> Any:
    """``count`` bytes of workspace, rounded up to a cache line; 0 if not ``wanted``."""
    return (count + 63) // 64 * 64 if wanted else 0


@njit
def run_pass(
    src: Any,
    row_start: int, row_step: int, row_length: int, row_begin: float, row_span: float, row_size: int, row_window: Any,
    col_start: int, col_step: int, col_length: int, col_begin: float, col_span: float, col_size: int, col_window: Any,
    resample: int, rows_first: bool, fills: Any, table: Any, item: int, factors: Any,
    out: Any, planar: bool, scratch: Any,
) -> Any:  # fmt: skip
    """``passes.run``, for tables and outputs with items of ``item`` bytes.

    Returns 0, or the bytes of workspace that it needs, or -1 if arguments do not fit.
    """
    src_height, src_width, channels = src.shape
    n_rows, n_cols = row_window.shape[0], col_window.shape[0]
    row_lowest, y_first, y_stop, top, bottom = _needed(row_length, row_begin, row_span, row_size, row_window, resample)
    col_lowest, x_first, x_stop, left, right = _needed(col_length, col_begin, col_span, col_size, col_window, resample)
    by_rows, by_cols = _resampled(row_begin, row_span, row_size), _resampled(col_begin, col_span, col_size)
    if (
        min(row_lowest, col_lowest) < -fills.shape[0]
        or y_stop > row_size
        or x_stop > col_size
        or not _inside(row_start, row_step, top, bottom, src_height)
        or not _inside(col_start, col_step, left, right, src_width)
        or channels not in (1, 3, 4)
        or (fills.shape[1], table.shape) != (channels, (channels, 256))
        or out.shape != ((channels, n_rows, n_cols) if planar else (n_rows, n_cols, channels))
        or ((by_rows or by_cols) and not known(resample))
    ):
        return -1

    if n_rows == 0 or n_cols == 0:
        return 0

    made = np.int64(out.ctypes.data)
    plane, pixel, pitch = (n_rows * n_cols, 1, n_cols) if planar else (1, channels, n_cols * channels)
    if y_first == y_stop or x_first == x_stop:  # all is fill
        by_rows = by_cols = False

    # ``image`` is the address of the first pixel that is needed, in the order of the view's rows and the source's
    # columns: view row p is its row ``p - top``, view column p its column ``first + step * p``.  ``height`` and
    # ``width`` are its rows and bytes.  Each pass below reads it and puts its own result in its place.
    leftmost = min(col_start + col_step * left, col_start + col_step * (right - 1))
    image = src.ctypes.data + ((row_start + row_step * top) * src_width + leftmost) * channels
    beyond = src.ctypes.data + src.size
    stride = row_step * src_width * channels
    first, step = col_start - leftmost, col_step
    height, width = bottom - top, (right - left) * channels
    shown_rows, shown_cols = y_stop - y_first, x_stop - x_first

    # The resize works on 16 bytes and, for columns, on 16 rows at a time: a smaller image is copied to a larger place.
    small = ((by_rows or by_cols) and width < LANES) or (by_cols and height < LANES)
    rows_first = rows_first and by_rows and by_cols
    full_width, full_height, full_shown = padded(width), max(height, LANES), max(shown_rows, LANES)
    middle_width, middle_height = padded(shown_cols * channels), full_shown if rows_first else full_height

    memory = np.int64(scratch.ctypes.data)
    copy = (memory + 63) // 64 * 64
    shrunk = copy + _room(full_height * full_width, small)
    tile = shrunk + _room(full_shown * full_width, rows_first)
    col_taps = most_taps(resample, col_span, col_size)
    shrinks = by_cols and pays(col_taps)
    sums = tile + _room(tile_size(full_width, channels, col_taps), by_cols)
    groups = sums + _room(LANES * (middle_width + 1), by_cols)
    middle = groups + _room(groups_memory(middle_width), by_cols)
    line = middle + _room(middle_height * middle_width, by_cols)
    row_memory = line + _room(max(full_width, middle_width), by_rows)
    col_memory = row_memory + _room(memory_size(resample, row_span, row_size, shown_rows), by_rows)
    weights = col_memory + _room(memory_size(resample, col_span, col_size, shown_cols), by_cols)
    proof = weights + _room(weights_size(col_taps, shown_cols), shrinks)
    gathered = proof + PROOF_SIZE
    size = gathered + _room(n_cols * channels, True) - memory
    if size > scratch.size:
        return size

    if small:
        copy_rows(image, stride, height, width, copy, full_width)
        image, stride, height, width, beyond = copy, full_width, full_height, full_width, shrunk
    if by_rows:
        row_bounds, row_coefficients, row_shift = compute(
            resample, row_length, row_begin, row_span, row_size, y_first, shown_rows, row_memory
        )
    if rows_first:
        for i in range(shown_rows):
            source, target = image + (row_bounds[i, 0] - top) * stride, shrunk + i * full_width
            resize_row(source, stride, width, row_coefficients, i, row_bounds[i, 1], row_shift, target)
        image, stride, height, top, beyond = shrunk, full_width, full_shown, y_first, tile
    if by_cols:
        bounds, coefficients, shift = compute(
            resample, col_length, col_begin, col_span, col_size, x_first, shown_cols, col_memory
        )
        if not resize_by_dots(
            image, stride, height, width, first, step, channels, bounds, coefficients, shift, groups, middle,
            middle_width,
        ):  # fmt: skip
            if not shrinks:
                resize_columns(
                    image, stride, height, width, first, step, channels, bounds, coefficients, shift, tile, sums,
                    middle, middle_width,
                )  # fmt: skip
            elif not shrink_columns(
                image, stride, height, width, beyond, first, step, channels, bounds, coefficients, shift, weights,
                tile, sums, middle, middle_width,
            ):  # fmt: skip
                return -1
        image, stride, width, first, step = middle, middle_width, middle_width, -x_first, 1

    # A window that is one run is read where it is.  Any other row, and one of fill, is gathered first.
    begin, end, direction = longest_run(col_window)
    direct = end - begin == n_cols
    run_step = (direction * step if direct else 1) * channels
    run_start = (first + step * col_window[0]) * channels
    gathered_start = gathered + ((n_cols - 1) * channels if run_step < 0 else 0)
    in_order = end if direction * step == 1 else begin
    arithmetic = n_cols >= LANES and stands_in(table, item, factors, run_step, planar, proof)
    for y in range(n_rows):
        code, at = np.int64(row_window[y]), y * pitch
        row = image + (code - top) * stride
        if code >= 0 and by_rows and not rows_first:
            i, row = code - y_first, line
            source = image + (row_bounds[i, 0] - top) * stride
            resize_row(source, stride, width, row_coefficients, i, row_bounds[i, 1], row_shift, line)
        start = row + run_start
        if code < 0 or not direct:
            start = gathered_start
            if y == 0 or row_window[y - 1] != code:  # repeated rows are gathered once
                gather_line(row, first, step, col_window, code, fills, begin, in_order, gathered)
        if arithmetic:
            write_blocks(start, run_step, factors, item, made, at, plane, pixel, n_cols)
        else:
            write_run(start, run_step, table, item, made, at, plane, pixel, n_cols)
    return 0
