"""The headers of a batch of files that lie in one buffer, read without Python and without the GIL."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from accel.codec.jpeg import SOURCES
from accel.codec.jpeg import header_fields as hd
from accel.codec.jpeg import layout_fields as lo
from accel.native import units

MAX_FILE = 1 << 27
"""Bytes of a file, all of whose bits have numbers within 31 bits."""

UNIT = units.Unit("headers", "backends/cuda/jpeg/read_headers.py", *SOURCES, seconds=1.5)
_read_headers = UNIT.function(
    "backends.cuda.jpeg.read_headers", "read_headers", "u1[1] i8[1] i8[1] i8[2] ?[1]w i8[2]w i8[3]w int"
)

Integers = npt.NDArray[np.int64]


class Headers(NamedTuple):
    """Contents of the files' headers; rows of files that the decoder does not take are meaningless.

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
    _read_headers(files, starts, sizes, boxes, good, headers, regions, MAX_FILE)
    good &= (channels == 3) | (headers[:, hd.COMPONENTS] == 1)
    return Headers(good, headers, regions)
