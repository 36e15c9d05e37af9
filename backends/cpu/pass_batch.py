"""A whole batch through the kernel: pictures of one size that lie one after another in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit

from accel.backends.cpu.pass_image import run_pass
from accel.backends.shared.numba_memory import pointer


@njit
def run_batch(
    pictures: Any, first: int, stop: int, rows: Any, row_windows: Any, columns: Any, column_windows: Any,
    resample: int, rows_first: Any, fills: Any, table: Any, item: int, factors: Any,
    out: Any, planar: bool, scratch: Any,
) -> Any:  # fmt: skip
    """``passes.run`` of pictures ``first`` to ``stop``, all of which have the same table.

    ``rows``, ``columns``: the start, step, length and size of each one's axes, and more. Returns what ``run_pass``
    does, of the first that it is not 0 of.
    """
    shape = out.shape[1:]
    size = item * shape[0] * shape[1] * shape[2]
    for i in range(first, stop):
        image = carray(pointer(np.int64(out.ctypes.data) + i * size), shape, np.uint8)
        status = run_pass(
            pictures[i],
            rows[i, 0], rows[i, 1], rows[i, 2], 0.0, np.float64(rows[i, 2]), rows[i, 3], row_windows[i],
            columns[i, 0], columns[i, 1], columns[i, 2], 0.0, np.float64(columns[i, 2]), columns[i, 3],
            column_windows[i],
            resample, rows_first[i] != 0, fills, table, item, factors, image, planar, scratch,
        )  # fmt: skip
        if status != 0:
            return status
    return 0
