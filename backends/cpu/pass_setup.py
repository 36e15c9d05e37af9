"""Setup of an image's pass before a pixel is read: the part that is needed, coefficients, and the workspace."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit

from accel.backends.cpu import pass_fields as ps
from accel.backends.cpu.pass_blocks import PROOF_SIZE
from accel.backends.cpu.pass_columns import pays, tile_size, weigh, weights_size
from accel.backends.cpu.pass_dots import describe, groups_memory
from accel.backends.cpu.pass_resize import padded
from accel.backends.cpu.pass_rows import shown
from accel.backends.cpu.simd import LANES
from accel.backends.shared.coefficient_kernels import compute, known, memory_size, most_taps, taps
from accel.backends.shared.numba_memory import pointer


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
def _aligned(memory: int) -> Any:
    return (memory + 63) // 64 * 64


@njit
def state_in(memory: int) -> Any:
    """The state in the workspace at an address: int64 [STATE], see ``pass_fields``."""
    return carray(pointer(_aligned(memory)), (ps.STATE,), np.int64)


@njit
def set_up(
    src: Any,
    row_start: int, row_step: int, row_length: int, row_begin: float, row_span: float, row_size: int, row_window: Any,
    col_start: int, col_step: int, col_length: int, col_begin: float, col_span: float, col_size: int, col_window: Any,
    resample: int, rows_first: bool, fills: Any, table: Any, out: Any, planar: bool, scratch: Any,
) -> Any:  # fmt: skip
    """Fill the state of a pass (``pass_fields``), and compute its coefficients; see ``pass_image.run_pass``."""
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

    if y_first == y_stop or x_first == x_stop:  # all is fill, or the output is empty
        by_rows = by_cols = False

    leftmost = min(col_start + col_step * left, col_start + col_step * (right - 1))
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
    row_taps, col_taps = most_taps(resample, row_span, row_size), most_taps(resample, col_span, col_size)
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

    state = state_in(memory)
    state[ps.IMAGE] = src.ctypes.data + ((row_start + row_step * top) * src_width + leftmost) * channels
    state[ps.STRIDE], state[ps.BEYOND] = row_step * src_width * channels, src.ctypes.data + src.size
    state[ps.ROWS], state[ps.BYTES], state[ps.HEIGHT], state[ps.WIDTH] = height, width, height, width
    state[ps.TOP], state[ps.FIRST], state[ps.STEP], state[ps.CHANNELS] = top, col_start - leftmost, col_step, channels
    if small:
        state[ps.HEIGHT], state[ps.WIDTH], state[ps.BEYOND] = full_height, full_width, shrunk
    if rows_first:
        state[ps.HEIGHT], state[ps.BEYOND] = full_shown, tile
    state[ps.SMALL], state[ps.BY_ROWS], state[ps.BY_COLS], state[ps.IN_ROWS_FIRST] = small, by_rows, by_cols, rows_first
    state[ps.Y_FIRST], state[ps.X_FIRST] = y_first, x_first
    state[ps.SHOWN_ROWS], state[ps.SHOWN_COLS] = shown_rows, shown_cols
    state[ps.COPY], state[ps.SHRUNK], state[ps.TILE], state[ps.SUMS] = copy, shrunk, tile, sums
    state[ps.GROUPS], state[ps.WEIGHTS], state[ps.MIDDLE], state[ps.MIDDLE_WIDTH] = (
        groups,
        weights,
        middle,
        middle_width,
    )
    state[ps.LINE], state[ps.GATHERED], state[ps.PROOF] = line, gathered, proof
    state[ps.ROW_MEMORY], state[ps.COL_MEMORY] = row_memory, col_memory
    state[ps.ROW_MOST], state[ps.COL_MOST], state[ps.QUADS], state[ps.COUNT] = row_taps, col_taps, 0, 0
    if by_rows:
        _, _, state[ps.ROW_SHIFT] = compute(
            resample, row_length, row_begin, row_span, row_size, y_first, shown_rows, row_memory
        )
    if by_cols:
        bounds, coefficients, state[ps.COL_SHIFT] = compute(
            resample, col_length, col_begin, col_span, col_size, x_first, shown_cols, col_memory
        )
        first = col_start - leftmost
        state[ps.QUADS] = describe(state[ps.WIDTH], first, col_step, channels, bounds, coefficients, groups)
        if state[ps.QUADS] == 0 and shrinks:
            state[ps.COUNT] = weigh(bounds, coefficients, first, col_step, weights)
            if state[ps.COUNT] == 0:
                return -1
    return 0
