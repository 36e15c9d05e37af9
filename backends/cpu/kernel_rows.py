"""One row of finished pixels to one row of the output: window, fills, value table, layout and dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit

from .vector import pointer


@njit
def shown(window: Any) -> Any:
    """The lowest code, and the half-open range of shown positions, which is empty where all is fill."""
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
def emit_run(line: int, step: int, table: Any, out: Any, start: int, plane: int, pixel: int, count: int) -> None:
    """``count`` pixels, ``step`` bytes apart from address ``line`` on, to ``out[start + c * plane + x * pixel]``."""
    for c in range(table.shape[0]):
        values, source, at = table[c], line + c, start + c * plane
        x = 0
        while x < count:
            together = 4 if x + 4 <= count else 1
            for i in range(4 if together == 4 else 1):
                out[at + (x + i) * pixel] = values[carray(pointer(source + i * step), (1,), np.uint8)[0]]
            source += together * step
            x += together


@njit
def emit_codes(
    line: int,
    first: int,
    step: int,
    window: Any,
    row_code: int,
    fills: Any,
    table: Any,
    out: Any,
    start: int,
    plane: int,
    pixel: int,
) -> None:
    """Any window: position p is at byte ``(first + step * p) * channels`` of the line, the lower code wins."""
    channels = table.shape[0]
    for x in range(window.shape[0]):
        code = min(row_code, np.int64(window[x]))
        if code >= 0:
            position = np.int64(window[x])
            colour = carray(pointer(line + (first + step * position) * channels), (channels,), np.uint8)
        else:
            colour = fills[-1 - code]
        for c in range(channels):
            out[start + c * plane + x * pixel] = table[c, colour[c]]
