"""The fused pass of one image: its passes in order, on the whole image or on one band of rows after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from accel.backends.cpu import pass_fields as ps
from accel.backends.cpu.pass_blocks import stands_in, write_blocks
from accel.backends.cpu.pass_columns import shrink_columns
from accel.backends.cpu.pass_dots import resize_by_dots
from accel.backends.cpu.pass_resize import copy_rows, resize_columns, resize_row
from accel.backends.cpu.pass_rows import gather_line, longest_run, write_run
from accel.backends.cpu.pass_setup import set_up, state_in
from accel.backends.cpu.simd import LANES
from accel.backends.shared.coefficient_kernels import computed


@njit
def _resize_columns(state: Any, image: int, stride: int, n_rows: int, target: int) -> None:
    """Resample the columns of ``n_rows >= 16`` rows, ``stride`` bytes apart, to rows MIDDLE_WIDTH bytes apart."""
    first, step, channels, shift = state[ps.FIRST], state[ps.STEP], state[ps.CHANNELS], state[ps.COL_SHIFT]
    width, pitch, tile, sums = state[ps.WIDTH], state[ps.MIDDLE_WIDTH], state[ps.TILE], state[ps.SUMS]
    bounds, coefficients = computed(state[ps.COL_MEMORY], state[ps.COL_MOST], state[ps.SHOWN_COLS])
    if state[ps.QUADS] > 0:
        count = state[ps.SHOWN_COLS] * channels
        resize_by_dots(image, stride, n_rows, count, state[ps.QUADS], shift, state[ps.GROUPS], target, pitch)
    elif state[ps.COUNT] > 0:
        shrink_columns(
            image, stride, n_rows, width, state[ps.BEYOND], first, step, channels, bounds, state[ps.COUNT], shift,
            state[ps.WEIGHTS], tile, sums, target, pitch,
        )  # fmt: skip
    else:
        resize_columns(
            image, stride, n_rows, width, first, step, channels, bounds, coefficients, shift, tile, sums, target, pitch
        )


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
def _begun(src: Any, scratch: Any) -> Any:
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
    row_start: int, row_step: int, row_length: int, row_begin: float, row_span: float, row_size: int, row_window: Any,
    col_start: int, col_step: int, col_length: int, col_begin: float, col_span: float, col_size: int, col_window: Any,
    resample: int, rows_first: bool, fills: Any, table: Any, item: int, factors: Any,
    out: Any, planar: bool, part: int, scratch: Any,
) -> Any:  # fmt: skip
    """``passes.run``, or a ``part`` of it (``pass_fields``), for tables and outputs with items of ``item`` bytes.

    Returns 0, or the bytes of workspace that it needs if ``scratch`` is smaller, or -1 if arguments do not fit or the
    pass cannot be run in bands.
    """
    if part != ps.END:
        status = set_up(
            src, row_start, row_step, row_length, row_begin, row_span, row_size, row_window,
            col_start, col_step, col_length, col_begin, col_span, col_size, col_window,
            resample, rows_first, fills, table, out, planar, scratch,
        )  # fmt: skip
        if status != 0:
            return status
        if part == ps.BEGIN:
            return 0 if _begun(src, scratch) else -1
    if out.size > 0:
        _run(row_step, row_window, col_window, fills, table, item, factors, out, planar, scratch, part)
    return 0


@njit
def _run(
    row_step: int, row_window: Any, col_window: Any, fills: Any, table: Any, item: int, factors: Any, out: Any,
    planar: bool, scratch: Any, part: int,
) -> None:  # fmt: skip
    """Run the passes of an image whose state is in the workspace; each reads the result of the one before."""
    state = state_in(np.int64(scratch.ctypes.data))
    image, stride, width, top = state[ps.IMAGE], state[ps.STRIDE], state[ps.WIDTH], state[ps.TOP]
    first, step, channels = state[ps.FIRST], state[ps.STEP], state[ps.CHANNELS]
    if state[ps.SMALL] != 0:
        copy_rows(image, stride, state[ps.ROWS], state[ps.BYTES], state[ps.COPY], width)
        image, stride = state[ps.COPY], width
    row_bounds, row_coefficients = computed(state[ps.ROW_MEMORY], state[ps.ROW_MOST], state[ps.SHOWN_ROWS])
    row_shift, in_order = state[ps.ROW_SHIFT], state[ps.IN_ROWS_FIRST] == 0
    if not in_order:
        for i in range(state[ps.SHOWN_ROWS]):
            source, target = image + (row_bounds[i, 0] - top) * stride, state[ps.SHRUNK] + i * width
            resize_row(source, stride, width, row_coefficients, i, row_bounds[i, 1], row_shift, target)
        image, stride, top = state[ps.SHRUNK], width, state[ps.Y_FIRST]
    if state[ps.BY_COLS] != 0:
        pitch = state[ps.MIDDLE_WIDTH]
        if part == ps.ALL:
            _resize_columns(state, image, stride, state[ps.HEIGHT], state[ps.MIDDLE])
        image, stride, width, first, step = state[ps.MIDDLE], pitch, pitch, -state[ps.X_FIRST], np.int64(1)
        if part == ps.END and row_step < 0:
            image, stride = image + (state[ps.ROWS] - 1) * pitch, -pitch

    # A window that is one run is read where it is.  Any other row, and one of fill, is gathered first.
    n_rows, n_cols = row_window.shape[0], col_window.shape[0]
    made = np.int64(out.ctypes.data)
    plane, pixel, row_pitch = (n_rows * n_cols, 1, n_cols) if planar else (1, channels, n_cols * channels)
    begin, end, direction = longest_run(col_window)
    direct = end - begin == n_cols
    run_step = (direction * step if direct else 1) * channels
    run_start = (first + step * col_window[0]) * channels
    gathered, line = state[ps.GATHERED], state[ps.LINE]
    gathered_start = gathered + ((n_cols - 1) * channels if run_step < 0 else 0)
    run_end = end if direction * step == 1 else begin
    arithmetic = n_cols >= LANES and stands_in(table, item, factors, run_step, planar, state[ps.PROOF])
    resizes = state[ps.BY_ROWS] != 0 and in_order
    for y in range(n_rows):
        code, at = np.int64(row_window[y]), y * row_pitch
        row = image + (code - top) * stride
        if code >= 0 and resizes:
            i, row = code - state[ps.Y_FIRST], line
            source = image + (row_bounds[i, 0] - top) * stride
            resize_row(source, stride, width, row_coefficients, i, row_bounds[i, 1], row_shift, line)
        start = row + run_start
        if code < 0 or not direct:
            start = gathered_start
            if y == 0 or row_window[y - 1] != code:  # repeated rows are gathered once
                gather_line(row, first, step, col_window, code, fills, begin, run_end, gathered)
        if arithmetic:
            write_blocks(start, run_step, factors, item, made, at, plane, pixel, n_cols)
        else:
            write_run(start, run_step, table, item, made, at, plane, pixel, n_cols)
