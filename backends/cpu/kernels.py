"""The CPU backend's kernel: crop, Pillow's resize, flip, pad, value table, layout and dtype in one pass.

An image is read once and its output written once.  In between there are only the rows of the column pass and one
finished row, in a workspace each thread keeps.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit, types

from .kernel_blocks import NO_FACTORS, PROOF_SIZE, emit_blocks, factors, stands_in
from .kernel_order import rows_first
from .kernel_resize import copy_rows, padded, resize_columns, resize_row
from .kernel_rows import emit_codes, emit_run, longest_run, shown
from .kernel_weights import taps, weigh, weights_size
from .vector import LANES

MOST_RETAINED = 16 << 20
"""A thread keeps a workspace up to this many bytes."""


class Axis(NamedTuple):
    """One axis of an image: a view of the source, resampled, then shown through a window.

    Position p of the view, below ``length``, is source position ``start + step * p`` (step 1 or -1).  The view is
    resampled to ``size`` positions, or left alone where ``size == length``.  ``window`` is C-contiguous int32: the
    resampled position each output position shows, or -1 - i for fill colour i.
    """

    start: int
    step: int
    length: int
    size: int
    window: npt.NDArray[np.int32]


@njit
def _needed(length: int, size: int, window: Any, resample: int) -> Any:
    """What an axis shows: its lowest code, a range of resampled positions and the range of view positions below.

    Both ranges are half-open, and empty where all is fill.
    """
    lowest, first, stop = shown(window)
    if first == stop or length == size:
        return lowest, first, stop, first, stop
    return lowest, first, stop, taps(resample, length, size, first)[0], taps(resample, length, size, stop - 1)[1]


@njit
def _inside(start: int, step: int, first: int, stop: int, extent: int) -> Any:
    """Whether view positions ``first <= p < stop`` read source positions below ``extent``."""
    ends = start + step * first, start + step * (stop - 1)
    return first == stop or (min(ends) >= 0 and max(ends) < extent)


@njit
def _room(count: int) -> Any:
    """``count`` bytes of workspace, rounded up to a cache line."""
    return (count + 63) // 64 * 64


def _emit(
    src: Any,
    row_start: int,
    row_step: int,
    row_length: int,
    row_size: int,
    row_window: Any,
    col_start: int,
    col_step: int,
    col_length: int,
    col_size: int,
    col_window: Any,
    resample: int,
    rows_first: bool,
    fills: Any,
    table: Any,
    factors: Any,
    out: Any,
    planar: bool,
    scratch: Any,
) -> Any:
    """``emit``, to be compiled for a dtype: 0, or the size of the workspace it wants, or -1 for a misfit."""
    height, width, channels = src.shape
    n_rows, n_cols = row_window.shape[0], col_window.shape[0]
    row_lowest, y_first, y_stop, top, bottom = _needed(row_length, row_size, row_window, resample)
    col_lowest, x_first, x_stop, left, right = _needed(col_length, col_size, col_window, resample)
    if (
        min(row_lowest, col_lowest) < -fills.shape[0]
        or y_stop > row_size
        or x_stop > col_size
        or not _inside(row_start, row_step, top, bottom, height)
        or not _inside(col_start, col_step, left, right, width)
        or (fills.shape[1], table.shape[0]) != (channels, channels)
        or out.shape != ((channels, n_rows, n_cols) if planar else (n_rows, n_cols, channels))
    ):
        return -1

    flat = out.reshape(-1)
    plane, pixel, pitch = (n_rows * n_cols, 1, n_cols) if planar else (1, channels, n_cols * channels)
    if y_first == y_stop or x_first == x_stop:
        for y in range(n_rows):
            emit_codes(0, 0, 0, col_window, row_window[y], fills, table, flat, y * pitch, plane, pixel)
        return 0

    # From here on ``image`` is the address of the first pixel that is needed, in the order of the view's rows and of
    # the source's columns: view column p is column ``first + step * p`` there.  It moves from buffer to buffer.
    by_rows, by_cols = row_length != row_size, col_length != col_size
    rows_first = rows_first and by_rows and by_cols
    leftmost = min(col_start + col_step * left, col_start + col_step * (right - 1))
    image = src.ctypes.data + ((row_start + row_step * top) * width + leftmost) * channels
    stride = row_step * width * channels
    first, step = col_start - leftmost, col_step
    height, width = bottom - top, (right - left) * channels  # width in bytes

    # The resize works on 16 bytes and, for columns, on 16 rows at a time: a smaller image moves to a larger place.
    small = ((by_rows or by_cols) and width < LANES) or (by_cols and height < LANES)
    shown_rows, shown_cols = y_stop - y_first, x_stop - x_first
    resized_width = padded(shown_cols * channels)

    copy = np.int64(scratch.ctypes.data)
    tile = copy + (_room(max(height, LANES) * padded(width)) if small else 0)
    sums = tile + (_room(LANES * padded(width)) if by_cols else 0)
    middle = sums + (_room(LANES * resized_width) if by_cols else 0)
    resized_rows = middle + (_room(max(height, LANES) * resized_width) if by_cols else 0)
    proof = resized_rows + (_room(max(shown_rows, LANES) * padded(width)) if rows_first else 0)
    line = proof + _room(PROOF_SIZE)
    row_memory = line + (_room(max(padded(width), resized_width)) if by_rows else 0)
    col_memory = row_memory + (_room(weights_size(resample, row_length, row_size, shown_rows)) if by_rows else 0)
    stop = col_memory + (_room(weights_size(resample, col_length, col_size, shown_cols)) if by_cols else 0)
    if stop - copy > scratch.size:
        return stop - copy

    if small:
        copy_rows(image, stride, height, width, copy, padded(width))
        image, stride, height, width = copy, padded(width), max(height, LANES), padded(width)
    if by_rows:
        row_bounds, row_weights = weigh(resample, row_length, row_size, y_first, shown_rows, row_memory)
    if rows_first:
        for i in range(shown_rows):
            source = image + (row_bounds[i, 0] - top) * stride
            target = resized_rows + i * padded(width)
            resize_row(source, stride, width, row_weights[i].ctypes.data, row_bounds[i, 1], target)
        image, stride, height, top = resized_rows, padded(width), max(shown_rows, LANES), y_first
    if by_cols:
        bounds, weights = weigh(resample, col_length, col_size, x_first, shown_cols, col_memory)
        resize_columns(
            image, stride, height, width, first, step, channels, bounds, weights, tile, sums, middle, resized_width
        )
        image, stride, width, first, step = middle, resized_width, resized_width, -x_first, 1

    begin, end, direction = longest_run(col_window)
    run_start, run_step = (first + step * col_window[begin]) * channels, direction * step * channels
    arithmetic = end - begin >= LANES and channels != 4 and stands_in(table, factors, run_step, planar, proof)
    for y in range(n_rows):
        code, at = np.int64(row_window[y]), y * pitch
        if code < 0:
            emit_codes(0, 0, 0, col_window, code, fills, table, flat, at, plane, pixel)
            continue
        row = image + (code - top) * stride
        if by_rows and not rows_first:
            i, row = code - y_first, line
            source = image + (row_bounds[i, 0] - top) * stride
            resize_row(source, stride, width, row_weights[i].ctypes.data, row_bounds[i, 1], line)
        run_at = at + begin * pixel
        if arithmetic:
            emit_blocks(row + run_start, run_step, factors, flat, run_at, plane, pixel, end - begin)
        else:
            emit_run(row + run_start, run_step, table, flat, run_at, plane, pixel, end - begin)
        emit_codes(row, first, step, col_window[:begin], code, fills, table, flat, at, plane, pixel)
        emit_codes(row, first, step, col_window[end:], code, fills, table, flat, at + end * pixel, plane, pixel)
    return 0


def _gather(src: Any, rows: Any, cols: Any, fills: Any, out: Any) -> Any:
    """``gather``, to be compiled: 0, or -1 for a misfit."""
    height, width, channels = src.shape
    row_lowest, _, row_stop = shown(rows)
    col_lowest, _, col_stop = shown(cols)
    if (
        min(row_lowest, col_lowest) < -fills.shape[0]
        or row_stop > height
        or col_stop > width
        or fills.shape[1] != channels
        or out.shape != (rows.shape[0], cols.shape[0], channels)
    ):
        return -1
    begin, end, step = longest_run(cols)
    in_order = end - begin == cols.shape[0] and step == 1
    for y in range(rows.shape[0]):
        if in_order and rows[y] >= 0:
            out[y] = src[rows[y], cols[0] : cols[0] + cols.shape[0]]
            continue
        for x in range(cols.shape[0]):
            code = min(rows[y], cols[x])
            for c in range(channels):
                out[y, x, c] = src[rows[y], cols[x], c] if code >= 0 else fills[-1 - code, c]
    return 0


def _array(dtype: Any, ndim: int, *, readonly: bool = True) -> Any:
    """A C-contiguous array; one declared read-only accepts a writable one as well."""
    return types.Array(dtype, ndim, "C", readonly=readonly)


_AXIS = (types.int64, types.int64, types.int64, types.int64, _array(types.int32, 1))
_COMPILE = {"nogil": True, "cache": True, "error_model": "numpy"}


@functools.cache
def _emit_for(dtype: str) -> Callable[..., int]:
    """``_emit`` compiled, or loaded from numba's cache, for one dtype of table and output."""
    value = getattr(types, dtype)
    image, bytes_out = _array(types.uint8, 3), _array(types.uint8, 1, readonly=False)
    signature = types.int64(
        image, *_AXIS, *_AXIS, types.int64, types.boolean, _array(types.uint8, 2), _array(value, 2), _array(types.float32, 2),
        _array(value, 3, readonly=False), types.boolean, bytes_out,
    )  # fmt: skip
    kernel: Callable[..., int] = njit(signature, **_COMPILE)(_emit)
    return kernel


@functools.cache
def _gather_compiled() -> Callable[..., int]:
    codes, image = _array(types.int32, 1), _array(types.uint8, 3)
    signature = types.int64(image, codes, codes, _array(types.uint8, 2), _array(types.uint8, 3, readonly=False))
    kernel: Callable[..., int] = njit(signature, **_COMPILE)(_gather)
    return kernel


class _Workspace(threading.local):
    """Memory that a thread's calls share, so that they need not allocate."""

    def __init__(self) -> None:
        self.memory = np.empty(0, np.uint8)


_workspace = _Workspace()


def emit(
    src: npt.NDArray[np.uint8],
    rows: Axis,
    cols: Axis,
    resample: int,
    fills: npt.NDArray[np.uint8],
    table: npt.NDArray[Any],
    out: npt.NDArray[Any],
    planar: bool,
) -> None:
    """View, resample and window both axes of ``src`` and write ``table[c, value]`` to ``out``.

    Args:
        src: uint8 [h, w, C], C in 1, 3, 4; only the positions that something shown depends on need to lie inside.
        rows: the vertical axis.
        cols: the horizontal axis, resampled before the vertical one as in Pillow.
        resample: Pillow's code of the filter (1 Lanczos, 2 bilinear, 3 bicubic, 4 box, 5 Hamming).
        fills: uint8 [F, C]; where row and column both name a colour, the lower code wins.
        table: [C, 256] of uint8, uint16, uint32 or uint64: the bit patterns of the output values.
        out: ``table``'s dtype, [C, rows, cols] if ``planar``, else [rows, cols, C].
        planar: the layout of ``out``.

    All arrays are C-contiguous.

    Raises:
        ValueError: shapes, codes or positions do not fit together; nothing was written.
        TypeError: a dtype is wrong or an array is not C-contiguous.
    """
    kernel = _emit_for(out.dtype.name)
    order = rows_first(rows.length, cols.length, rows.size, cols.size)
    scale = factors(table.tobytes(), len(table)) if table.dtype == np.uint32 else NO_FACTORS
    memory = _workspace.memory
    status = kernel(src, *rows, *cols, resample, order, fills, table, scale, out, planar, memory)
    if status > 0:
        memory = np.empty(status, np.uint8)
        if status <= MOST_RETAINED:
            _workspace.memory = memory
        status = kernel(src, *rows, *cols, resample, order, fills, table, scale, out, planar, memory)
    if status:
        raise ValueError(f"arguments do not fit together: {rows=}, {cols=}, {src.shape=}, {fills.shape=}, {out.shape=}")


def gather(
    src: npt.NDArray[np.uint8],
    rows: npt.NDArray[np.int32],
    cols: npt.NDArray[np.int32],
    fills: npt.NDArray[np.uint8],
    out: npt.NDArray[np.uint8],
) -> None:
    """``out[y, x] = src[rows[y], cols[x]]``, or a colour of ``fills`` [F, C] where a code is negative.

    ``src`` uint8 [h, w, C], ``out`` uint8 [n_rows, n_cols, C], ``rows`` and ``cols`` int32, all C-contiguous; -1 - i is
    fill colour i and the lower of two negative codes wins.

    Raises:
        ValueError: shapes or codes do not fit together; nothing was written.
        TypeError: a dtype is wrong or an array is not C-contiguous.
    """
    if _gather_compiled()(src, rows, cols, fills, out):
        raise ValueError(f"codes or shapes do not fit: {src.shape=}, {fills.shape=}, {out.shape=}")


def warm_up() -> None:
    """Compile, or load from numba's cache, what most runs need, so that forked workers inherit it."""
    _emit_for("uint8")
    _emit_for("uint32")
    _gather_compiled()
