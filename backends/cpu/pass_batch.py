"""The fused pass of a whole batch of pictures that lie in one piece of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit

from accel.backends.cpu import pass_fields as ps
from accel.backends.cpu.pass_image import run_pass
from accel.backends.cpu.pass_windows import show_window
from accel.backends.shared.numba_memory import pointer
from accel.planning.column_fields import AXIS, LENGTH, SIZE, START, STEP, WINDOW, WINDOW_STEP


@njit
def run_batch(
    pictures: Any, parts: Any, first: int, stop: int, axes: Any, windows: Any, resample: int, rows_first: Any,
    fills: Any, table: Any, item: int, factors: Any, out: Any, planar: bool, scratch: Any,
) -> Any:  # fmt: skip
    """``passes.run`` for pictures ``first`` to ``stop`` (excluded), all of which have the same table.

    ``parts``: where each begins, its height and width. ``axes``: int64 [2, images, AXIS], the axis of each one's rows,
    and that of its columns (``column_fields``). ``windows``: int32 [2, n], working memory, n at least the output's
    height and width. Returns 0, or the first other result of ``run_pass``.
    """
    shape = out.shape[1:]
    shown = (shape[1], shape[2]) if planar else (shape[0], shape[1])
    if len(axes) != 2 or axes.shape[2] != AXIS or len(windows) != 2 or max(shown) > windows.shape[1]:
        return -1
    size, channels = item * shape[0] * shape[1] * shape[2], table.shape[0]
    for i in range(first, stop):
        image = carray(pointer(np.int64(out.ctypes.data) + i * size), shape, np.uint8)
        begin, height, width = parts[i, 0], parts[i, 1], parts[i, 2]
        if begin < 0 or height < 1 or width < 1 or begin + height * width * channels > len(pictures):
            return -1
        row, column = axes[0, i], axes[1, i]
        row_window, column_window = windows[0, : shown[0]], windows[1, : shown[1]]
        show_window(row_window, row[SIZE], row[WINDOW], row[WINDOW_STEP])
        show_window(column_window, column[SIZE], column[WINDOW], column[WINDOW_STEP])
        status = run_pass(
            carray(pointer(np.int64(pictures.ctypes.data) + begin), (height, width, channels), np.uint8),
            row[START], row[STEP], row[LENGTH], 0.0, np.float64(row[LENGTH]), row[SIZE], row_window,
            column[START], column[STEP], column[LENGTH], 0.0, np.float64(column[LENGTH]), column[SIZE], column_window,
            resample, rows_first[i] != 0, fills, table, item, factors, image, planar, ps.ALL, scratch,
        )  # fmt: skip
        if status != 0:
            return status
    return 0
