"""The headers of a batch of files that lie in one buffer, read without Python and without the GIL."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from accel.codec.jpeg import header as hd
from accel.codec.jpeg import layout as lo

MAX_FILE = 1 << 27
"""Bytes of a file, all of whose bits have numbers within 31 bits."""

Integers = npt.NDArray[np.int64]


class Headers(NamedTuple):
    """What the files' headers say; rows of files that the decoder does not take are meaningless.

    Attributes:
        good: bool[n], whether it takes the file.
        headers: int64[n, HEADER_SIZE], see ``accel.codec.jpeg.header``.
        regions: int64[n, 3, LAYOUT_SIZE], see ``accel.codec.jpeg.layout``: what the region needs of each component.
    """

    good: npt.NDArray[np.bool_]
    headers: Integers
    regions: Integers

    def of(self, numbers: Integers) -> Headers:
        """The same of some of the files."""
        return Headers(self.good[numbers], self.headers[numbers], self.regions[numbers])


def read(
    files: npt.NDArray[np.uint8], starts: Integers, sizes: Integers, boxes: Integers, channels: Integers
) -> Headers:
    """Read the headers of n files.

    Args:
        files: uint8[...], all of them.
        starts, sizes: int64[n], bytes in ``files``.
        boxes: int64[n, 4], the regions (top, left, height, width) in pixels.
        channels: int64[n], what is wanted: 3, or 1 of grey files.
    """
    count = len(starts)
    good = np.zeros(count, np.bool_)
    headers = np.zeros((count, hd.HEADER_SIZE), np.int64)
    regions = np.zeros((count, 3, lo.LAYOUT_SIZE), np.int64)
    _read(files, starts, sizes, boxes, good, headers, regions)
    good &= (channels == 3) | (headers[:, hd.COMPONENTS] == 1)
    return Headers(good, headers, regions)


@njit(nogil=True, cache=True, error_model="numpy")
def _read(files: Any, starts: Any, sizes: Any, boxes: Any, good: Any, headers: Any, regions: Any) -> None:
    for n in range(len(starts)):
        data = files[starts[n] : starts[n] + sizes[n]]
        top, left, height, width = boxes[n, 0], boxes[n, 1], boxes[n, 2], boxes[n, 3]
        fits = sizes[n] < MAX_FILE and lo.prepare(data, headers[n], regions[n], False, top, left, height, width) > 0
        good[n] = fits and headers[n, hd.SCAN] < sizes[n]
