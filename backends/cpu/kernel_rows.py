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
def direction(window: Any) -> Any:
    """1 or -1 where the window shows neighbouring positions in order or mirrored, without fill; else 0."""
    if window.shape[0] < 2 or window.min() < 0:
        return 0
    step = window[1] - window[0]
    for i in range(1, window.shape[0]):
        if window[i] - window[i - 1] != step:
            return 0
    return step if abs(step) == 1 else 0


@njit
def emit_run(line: int, step: int, table: Any, out: Any, start: int, plane: int, pixel: int, count: int) -> None:
    """``count`` pixels, ``step`` bytes apart from address ``line`` on, to ``out[start + c * plane + x * pixel]``."""
    for c in range(table.shape[0]):
        values, at = table[c], start + c * plane
        for x in range(count):
            byte = carray(pointer(line + c + x * step), (1,), np.uint8)
            out[at + x * pixel] = values[byte[0]]


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
