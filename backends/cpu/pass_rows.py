"""Writing finished pixels to the output, row by row: window, fills, value table, layout and dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit

from accel.backends.cpu.simd import copy_bytes
from accel.backends.shared.numba_memory import pointer


@njit
def shown(window: Any) -> Any:
    """The lowest code, and the half-open range of shown positions, which is empty if all is fill."""
    lowest, first, stop = np.int64(0), np.int64(1 << 31), np.int64(0)
    for code in window:
        lowest, stop = min(lowest, code), max(stop, code + 1)
        if code >= 0:
            first = min(first, code)
    return lowest, min(first, stop), stop


@njit
def longest_run(window: Any) -> Any:
    """The longest stretch of output positions that show neighbours in order or mirrored: begin, stop and step.

    The step is 1 or -1.  Plain and mirrored windows are one such run, padded and reflected ones mostly.
    """
    best, best_stop, best_step = 0, 0, 1
    begin, step = 0, 1
    for x in range(window.shape[0]):
        joined = x > begin and window[x] >= 0 and window[x - 1] >= 0 and abs(window[x] - window[x - 1]) == 1
        if joined and x == begin + 1:
            step = window[x] - window[x - 1]
        elif not joined or window[x] - window[x - 1] != step:
            begin, step = x, 1
        if window[x] >= 0 and x + 1 - begin > best_stop - best:
            best, best_stop, best_step = begin, x + 1, step
    return best, best_stop, best_step


@njit
def write_run(
    line: int, step: int, table: Any, item: int, out: int, start: int, plane: int, pixel: int, count: int
) -> None:
    """Look up ``count`` pixels, ``step`` bytes apart from address ``line`` on, and write them to address ``out``.

    Channel c of pixel x goes to item ``start + c * plane + x * pixel``; ``item``: the bytes of an item.
    """
    channels, values = table.shape[0], table.ctypes.data
    if item == 1:
        _write_run(line, step, values, channels, np.uint8, out, start, plane, pixel, count)
    elif item == 2:
        _write_run(line, step, values, channels, np.uint16, out, start, plane, pixel, count)
    elif item == 4:
        _write_run(line, step, values, channels, np.uint32, out, start, plane, pixel, count)
    else:
        _write_run(line, step, values, channels, np.uint64, out, start, plane, pixel, count)


@njit
def _write_run(
    line: int, step: int, table: int, channels: int, dtype: Any,
    out: int, start: int, plane: int, pixel: int, count: int,
) -> None:  # fmt: skip
    values, items = carray(pointer(table), (1,), dtype), carray(pointer(out), (1,), dtype)
    for c in range(channels):
        source, at = line + c, start + c * plane
        for x in range(count):
            byte = carray(pointer(source + x * step), (1,), np.uint8)[0]
            items[np.uint64(at + x * pixel)] = values[np.uint64(c * 256 + byte)]  # unsigned: nothing wraps around


@njit
def gather_line(
    line: int, first: int, step: int, window: Any, row_code: int, fills: Any, begin: int, end: int, target: int
) -> None:
    """Gather any window into a row of pixels at ``target``: position p is pixel ``first + step * p`` of the line.

    The lower of a row's and a column's code wins.  Positions ``begin`` to ``end`` show pixels in order.
    """
    channels = fills.shape[1]
    if row_code < 0 or begin >= end:
        _gather_codes(line, first, step, window, row_code, fills, 0, window.shape[0], target)
        return
    count = (end - begin) * channels
    copy_bytes(line + (first + step * window[begin]) * channels, target + begin * channels, count)
    _gather_codes(line, first, step, window, row_code, fills, 0, begin, target)
    _gather_codes(line, first, step, window, row_code, fills, end, window.shape[0], target)


@njit
def _gather_codes(
    line: int, first: int, step: int, window: Any, row_code: int, fills: Any, begin: int, end: int, target: int
) -> None:
    """``gather_line`` for positions ``begin`` to ``end``, one by one."""
    channels = np.int64(fills.shape[1])
    colours, origin, pitch = fills.ctypes.data, line + first * channels, step * channels
    for x in range(begin, end):
        position = np.int64(window[x])
        code = position if position < row_code else row_code
        source = colours - (1 + code) * channels if code < 0 else origin + pitch * position
        if channels == 3:
            copy_bytes(source, target + x * 3, 3)
        else:
            copy_bytes(source, target + x * channels, channels)
