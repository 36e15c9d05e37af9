"""The fused pass of a whole batch of pictures that lie in one piece of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit

from accel.backends.cpu import pass_fields as ps
from accel.backends.cpu.pass_image import run_pass
from accel.backends.shared.numba_memory import pointer


@njit
def run_batch(
    pictures: Any, parts: Any, first: int, stop: int, rows: Any, row_windows: Any, columns: Any, column_windows: Any,
    resample: int, rows_first: Any, fills: Any, table: Any, item: int, factors: Any,
    out: Any, planar: bool, scratch: Any,
) -> Any:  # fmt: skip
    """``passes.run`` for pictures ``first`` to ``stop`` (excluded), all of which have the same table.

    ``parts``: where each begins, its height and width. ``rows``, ``columns``: the start, step, length, size (and more)
    of each one's axes. Returns 0, or the first other result of ``run_pass``.
    """
    shape = out.shape[1:]
    size, channels = item * shape[0] * shape[1] * shape[2], table.shape[0]
    for i in range(first, stop):
        image = carray(pointer(np.int64(out.ctypes.data) + i * size), shape, np.uint8)
        begin, height, width = parts[i, 0], parts[i, 1], parts[i, 2]
        if begin < 0 or height < 1 or width < 1 or begin + height * width * channels > len(pictures):
            return -1
        status = run_pass(
            carray(pointer(np.int64(pictures.ctypes.data) + begin), (height, width, channels), np.uint8),
            rows[i, 0], rows[i, 1], rows[i, 2], 0.0, np.float64(rows[i, 2]), rows[i, 3], row_windows[i],
            columns[i, 0], columns[i, 1], columns[i, 2], 0.0, np.float64(columns[i, 2]), columns[i, 3],
            column_windows[i],
            resample, rows_first[i] != 0, fills, table, item, factors, image, planar, ps.ALL, scratch,
        )  # fmt: skip
        if status != 0:
            return status
    return 0
