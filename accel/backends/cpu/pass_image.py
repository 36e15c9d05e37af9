"""The fused pass of one image: its setup before a pixel is read, and its passes in order.

They run on the whole image, or on one band of rows after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit

from accel.backends.cpu import pass_fields as ps
from accel.backends.cpu.pass_columns import pays, shrink_columns, tile_size, weigh, weights_size
from accel.backends.cpu.pass_dots import describe, groups_memory, resize_by_dots
from accel.backends.cpu.pass_fields import Axis
from accel.backends.cpu.pass_resize import copy_rows, padded, resize_columns, resize_row
from accel.backends.cpu.pass_rows import (
    PROOF_SIZE,
    gather_line,
    longest_run,
    shown,
    stands_in,
    write_blocks,
    write_run,
)
from accel.backends.cpu.simd import LANES
from accel.backends.shared.coefficient_kernels import compute, computed, known, memory_size, most_taps, taps
from accel.backends.shared.numba_memory import pointer


@njit
def _needed(axis: Any, resample: int) -> Any:
    """The part of an axis that is needed: the lowest code, the range of resampled positions, that of view positions.

    Both ranges are half-open, and empty if all is fill.
    """
    lowest, first, stop = shown(axis.window)
    if first == stop or not _is_resampled(axis):
        return lowest, first, stop, first, stop
    low, _ = taps(resample, axis.length, axis.begin, axis.span, axis.size, first)
    return lowest, first, stop, low, taps(resample, axis.length, axis.begin, axis.span, axis.size, stop - 1)[1]


@njit
def _is_resampled(axis: Any) -> Any:
    return axis.begin != 0.0 or axis.span != axis.size


@njit
def _is_inside(axis: Any, first: int, stop: int, extent: int) -> Any:
    """Whether view positions ``first <= p < stop`` read source positions below ``extent``."""
    ends = axis.start + axis.step * first, axis.start + axis.step * (stop - 1)
    return first == stop or (abs(axis.step) == 1 and min(ends) >= 0 and max(ends) < extent)


@njit
def _room(count: int, wanted: bool) -> Any:
    """``count`` bytes of workspace, rounded up to a cache line; 0 if not ``wanted``."""
    return (count + 63) // 64 * 64 if wanted else 0


@njit
def _aligned(memory: int) -> Any:
    return (memory + 63) // 64 * 64


@njit
def state_in(memory: int) -> Any:
    """The state in the workspace at an address: int64 [STATE], see ``pass_fields``."""
    return carray(pointer(_aligned(memory)), (ps.STATE,), np.int64)


@njit
def _do_shapes_fit(src: Any, rows: Any, cols: Any, fills: Any, table: Any, out: Any, planar: bool) -> Any:
    channels, n_rows, n_cols = src.shape[2], rows.window.shape[0], cols.window.shape[0]
    return (
        channels in (1, 3, 4)
        and (fills.shape[1], table.shape) == (channels, (channels, 256))
        and out.shape == ((channels, n_rows, n_cols) if planar else (n_rows, n_cols, channels))
    )


@njit
def _set_up(
    src: Any, rows: Any, cols: Any, resample: int, rows_first: bool, fills: Any, n_cols: int, scratch: Any
) -> Any:
    """Fill the state of a pass (``pass_fields``) whose shapes fit, and compute its coefficients; see ``run_pass``."""
    src_height, src_width, channels = src.shape
    row_lowest, y_first, y_stop, top, bottom = _needed(rows, resample)
    col_lowest, x_first, x_stop, left, right = _needed(cols, resample)
    by_rows, by_cols = _is_resampled(rows), _is_resampled(cols)
    if min(row_lowest, col_lowest) < -fills.shape[0] or y_stop > rows.size or x_stop > cols.size:
        return -1
    if not _is_inside(rows, top, bottom, src_height) or not _is_inside(cols, left, right, src_width):
        return -1
    if (by_rows or by_cols) and not known(resample):
        return -1
    if y_first == y_stop or x_first == x_stop:  # all is fill, or the output is empty
        by_rows = by_cols = False

    leftmost = min(cols.start + cols.step * left, cols.start + cols.step * (right - 1))
    height, width = bottom - top, (right - left) * channels
    shown_rows, shown_cols = y_stop - y_first, x_stop - x_first

    # The resize works on 16 bytes and, for columns, on 16 rows at a time: a smaller image is copied to a larger place.
    small = ((by_rows or by_cols) and width < LANES) or (by_cols and height < LANES)
    rows_first = rows_first and by_rows and by_cols
    full_width, full_height, full_shown = padded(width), padded(max(height, LANES)), max(shown_rows, LANES)
    middle_width, middle_height = padded(shown_cols * channels), full_shown if rows_first else full_height

    memory = np.int64(scratch.ctypes.data)
    copy = _aligned(memory) + _room(8 * ps.STATE, True)
    shrunk = copy + _room(full_height * full_width, small)
    tile = shrunk + _room(full_shown * full_width, rows_first)
    row_taps, col_taps = most_taps(resample, rows.span, rows.size), most_taps(resample, cols.span, cols.size)
    shrinks = by_cols and pays(col_taps)
    sums = tile + _room(tile_size(full_width, channels, col_taps), by_cols)
    groups = sums + _room(LANES * (middle_width + 1), by_cols)
    middle = groups + _room(groups_memory(middle_width), by_cols)
    line = middle + _room(middle_height * middle_width, by_cols)
    row_memory = line + _room(max(full_width, middle_width), by_rows)
    col_memory = row_memory + _room(memory_size(resample, rows.span, rows.size, shown_rows), by_rows)
    weights = col_memory + _room(memory_size(resample, cols.span, cols.size, shown_cols), by_cols)
    proof = weights + _room(weights_size(col_taps, shown_cols), shrinks)
    gathered = proof + PROOF_SIZE
    size = gathered + _room(n_cols * channels, True) - memory
    if size > scratch.size:
        return size

    state = state_in(memory)
    state[ps.IMAGE] = src.ctypes.data + ((rows.start + rows.step * top) * src_width + leftmost) * channels
    state[ps.STRIDE], state[ps.BEYOND] = rows.step * src_width * channels, src.ctypes.data + src.size
    state[ps.ROWS], state[ps.BYTES], state[ps.HEIGHT], state[ps.WIDTH] = height, width, height, width
    state[ps.TOP], state[ps.FIRST], state[ps.STEP], state[ps.CHANNELS] = top, cols.start - leftmost, cols.step, channels
    if small:
        state[ps.HEIGHT], state[ps.WIDTH], state[ps.BEYOND] = full_height, full_width, shrunk
    if rows_first:
        state[ps.HEIGHT], state[ps.BEYOND] = full_shown, tile
    state[ps.SMALL], state[ps.BY_ROWS], state[ps.BY_COLS], state[ps.IN_ROWS_FIRST] = small, by_rows, by_cols, rows_first
    state[ps.Y_FIRST], state[ps.X_FIRST] = y_first, x_first
    state[ps.SHOWN_ROWS], state[ps.SHOWN_COLS] = shown_rows, shown_cols
    state[ps.COPY], state[ps.SHRUNK], state[ps.TILE], state[ps.SUMS] = copy, shrunk, tile, sums
    state[ps.GROUPS], state[ps.WEIGHTS], state[ps.MIDDLE] = groups, weights, middle
    state[ps.MIDDLE_WIDTH], state[ps.LINE], state[ps.GATHERED], state[ps.PROOF] = middle_width, line, gathered, proof
    state[ps.ROW_MEMORY], state[ps.COL_MEMORY] = row_memory, col_memory
    state[ps.ROW_MOST], state[ps.COL_MOST], state[ps.QUADS], state[ps.COUNT] = row_taps, col_taps, 0, 0
    return 0 if _compute_coefficients(state, rows, cols, resample, shrinks) else -1


@njit
def _compute_coefficients(state: Any, rows: Any, cols: Any, resample: int, shrinks: bool) -> Any:
    """Compute the coefficients of both axes for a pass; False if one does not fit the digits of ``weigh``."""
    if state[ps.BY_ROWS] != 0:
        first, count, memory = state[ps.Y_FIRST], state[ps.SHOWN_ROWS], state[ps.ROW_MEMORY]
        part = compute(resample, rows.length, rows.begin, rows.span, rows.size, first, count, memory)
        state[ps.ROW_SHIFT] = part[2]
    if state[ps.BY_COLS] != 0:
        first, count, memory = state[ps.X_FIRST], state[ps.SHOWN_COLS], state[ps.COL_MEMORY]
        bounds, coefficients, state[ps.COL_SHIFT] = compute(
            resample, cols.length, cols.begin, cols.span, cols.size, first, count, memory
        )
        begin, step, width, channels = state[ps.FIRST], state[ps.STEP], state[ps.WIDTH], state[ps.CHANNELS]
        state[ps.QUADS] = describe(width, begin, step, channels, bounds, coefficients, state[ps.GROUPS])
        if state[ps.QUADS] == 0 and shrinks:
            state[ps.COUNT] = weigh(bounds, coefficients, begin, step, state[ps.WEIGHTS])
            return state[ps.COUNT] != 0
    return True


@njit
def _resize_columns(state: Any, image: int, stride: int, n_rows: int, target: int) -> None:
    """Resample the columns of ``n_rows >= 16`` rows, ``stride`` bytes apart, to rows MIDDLE_WIDTH bytes apart."""
    if state[ps.QUADS] > 0:
        resize_by_dots(state, image, stride, n_rows, target)
    elif state[ps.COUNT] > 0:
        shrink_columns(state, image, stride, n_rows, target)
    else:
        resize_columns(state, image, stride, n_rows, target)


@njit
def take_rows(begin: int, scratch: int) -> Any:
    """Resample the columns of the band from row ``begin`` on, a multiple of BAND.

    ``scratch``: the workspace of the image's pass, of which BEGIN was run. BAND rows are read in any case; if the image
    ends before, the results of the rows behind it are not used. Returns 0.
    """
    state = state_in(scratch)
    place = state[ps.MIDDLE] + begin * state[ps.MIDDLE_WIDTH]
    _resize_columns(state, state[ps.IMAGE], state[ps.STRIDE], ps.BAND, place)
    return 0


@njit
def _begin_bands(src: Any, scratch: Any) -> Any:
    """Have a pass that is set up read bands, all at the address of ``src``, from the image's first row to its last.

    False if the pass cannot be run in bands.
    """
    state = state_in(np.int64(scratch.ctypes.data))
    pitch = abs(state[ps.STRIDE])
    leftmost = (state[ps.IMAGE] - np.int64(src.ctypes.data)) % pitch
    state[ps.IMAGE], state[ps.STRIDE] = np.int64(src.ctypes.data) + leftmost, pitch
    state[ps.BEYOND] = np.int64(src.ctypes.data) + ps.BAND * pitch + ps.BEHIND
    ways = state[ps.BY_COLS] != 0 and state[ps.IN_ROWS_FIRST] == 0 and state[ps.SMALL] == 0
    return ways and state[ps.ROWS] == src.shape[0]


@njit
def run_pass(
    src: Any,
    row_start: int,
    row_step: int,
    row_length: int,
    row_begin: float,
    row_span: float,
    row_size: int,
    row_window: Any,
    col_start: int,
    col_step: int,
    col_length: int,
    col_begin: float,
    col_span: float,
    col_size: int,
    col_window: Any,
    resample: int,
    rows_first: bool,
    fills: Any,
    table: Any,
    item: int,
    factors: Any,
    out: Any,
    planar: bool,
    part: int,
    scratch: Any,
) -> Any:
    """``passes.run``, or a ``part`` of it (``pass_fields``), for tables and outputs with items of ``item`` bytes.

    Returns 0, or the bytes of workspace that it needs if ``scratch`` is smaller, or -1 if arguments do not fit or the
    pass cannot be run in bands.
    """
    rows = Axis(row_start, row_step, row_length, row_begin, row_span, row_size, row_window)
    cols = Axis(col_start, col_step, col_length, col_begin, col_span, col_size, col_window)
    if part != ps.END:
        if not _do_shapes_fit(src, rows, cols, fills, table, out, planar):
            return -1
        status = _set_up(src, rows, cols, resample, rows_first, fills, cols.window.shape[0], scratch)
        if status != 0:
            return status
        if part == ps.BEGIN:
            return 0 if _begin_bands(src, scratch) else -1
    if out.size > 0:
        _run(rows, cols, (fills, table, item, factors, out, planar), part, scratch)
    return 0


@njit
def _resize(state: Any, row_step: int, part: int) -> Any:
    """Run the passes of an image up to its rows, each on the result of the one before.

    Returns the address and stride of rows, the view's row that is the first of them, and the column and step of view
    column 0 in them.
    """
    image, stride, width, top = state[ps.IMAGE], state[ps.STRIDE], state[ps.WIDTH], state[ps.TOP]
    if state[ps.SMALL] != 0:
        copy_rows(image, stride, state[ps.ROWS], state[ps.BYTES], state[ps.COPY], width)
        image, stride = state[ps.COPY], width
    if state[ps.IN_ROWS_FIRST] != 0:
        bounds, coefficients = computed(state[ps.ROW_MEMORY], state[ps.ROW_MOST], state[ps.SHOWN_ROWS])
        for i in range(state[ps.SHOWN_ROWS]):
            source, target = image + (bounds[i, 0] - top) * stride, state[ps.SHRUNK] + i * width
            resize_row(source, stride, width, coefficients, i, bounds[i, 1], state[ps.ROW_SHIFT], target)
        image, stride, top = state[ps.SHRUNK], width, state[ps.Y_FIRST]
    if state[ps.BY_COLS] == 0:
        return image, stride, width, top, state[ps.FIRST], state[ps.STEP]
    if part == ps.ALL:
        _resize_columns(state, image, stride, state[ps.HEIGHT], state[ps.MIDDLE])
    image, stride, width = state[ps.MIDDLE], state[ps.MIDDLE_WIDTH], state[ps.MIDDLE_WIDTH]
    if part == ps.END and row_step < 0:
        image, stride = image + (state[ps.ROWS] - 1) * width, -width
    return image, stride, width, top, -state[ps.X_FIRST], np.int64(1)


@njit
def _run(rows: Any, cols: Any, values: Any, part: int, scratch: Any) -> None:
    """Run the passes of an image whose state is in the workspace, and write its rows.

    A window that is one run is read where it is.  Any other row, and one of fill, is gathered first.
    """
    fills, table, item, factors, out, planar = values
    state = state_in(np.int64(scratch.ctypes.data))
    image, stride, width, top, first, step = _resize(state, rows.step, part)
    row_bounds, row_coefficients = computed(state[ps.ROW_MEMORY], state[ps.ROW_MOST], state[ps.SHOWN_ROWS])
    n_rows, n_cols, channels = rows.window.shape[0], cols.window.shape[0], state[ps.CHANNELS]
    made = np.int64(out.ctypes.data)
    plane, pixel, row_pitch = (n_rows * n_cols, 1, n_cols) if planar else (1, channels, n_cols * channels)
    begin, end, direction = longest_run(cols.window)
    direct = end - begin == n_cols
    run_step = (direction * step if direct else 1) * channels
    run_start = (first + step * cols.window[0]) * channels
    gathered, line = state[ps.GATHERED], state[ps.LINE]
    gathered_start = gathered + ((n_cols - 1) * channels if run_step < 0 else 0)
    run_end = end if direction * step == 1 else begin
    arithmetic = n_cols >= LANES and stands_in(table, item, factors, run_step, planar, state[ps.PROOF])
    resizes = state[ps.BY_ROWS] != 0 and state[ps.IN_ROWS_FIRST] == 0
    for y in range(n_rows):
        code, at = np.int64(rows.window[y]), y * row_pitch
        row = image + (code - top) * stride
        if code >= 0 and resizes:
            i, row = code - state[ps.Y_FIRST], line
            source = image + (row_bounds[i, 0] - top) * stride
            resize_row(source, stride, width, row_coefficients, i, row_bounds[i, 1], state[ps.ROW_SHIFT], line)
        start = row + run_start
        if code < 0 or not direct:
            start = gathered_start
            if y == 0 or rows.window[y - 1] != code:  # repeated rows are gathered once
                gather_line(row, first, step, cols.window, code, fills, begin, run_end, gathered)
        if arithmetic:
            write_blocks(start, run_step, factors, item, made, at, plane, pixel, n_cols)
        else:
            write_run(start, run_step, table, item, made, at, plane, pixel, n_cols)
