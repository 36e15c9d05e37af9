"""Compiled code of ``headers``: the headers of a batch of files in one buffer."""

from __future__ import annotations

from typing import Any

from numba import njit

from accel.codec.jpeg import header_fields as hd
from accel.codec.jpeg.layout import prepare


@njit
def read_headers(
    files: Any, starts: Any, sizes: Any, boxes: Any, good: Any, headers: Any, regions: Any, most: int
) -> int:
    """Read headers (see ``headers.read``); files of ``most`` bytes or more are refused."""
    for n in range(len(starts)):
        data = files[starts[n] : starts[n] + sizes[n]]
        top, left, height, width = boxes[n, 0], boxes[n, 1], boxes[n, 2], boxes[n, 3]
        fits = sizes[n] < most and prepare(data, headers[n], regions[n], False, top, left, height, width) > 0
        good[n] = fits and headers[n, hd.SCAN] < sizes[n]
    return 0
