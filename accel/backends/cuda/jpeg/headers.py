"""Reading the headers of a batch of files in one buffer, without Python and without the GIL."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from accel.codec.jpeg import SOURCES
from accel.codec.jpeg import header_fields as hd
from accel.codec.jpeg import layout_fields as lo
from accel.system.native import units

MAX_FILE = 1 << 27
"""The bytes that a file must be below, so that the numbers of all its bits fit in 31 bits."""

_OWN = ("read_files.py", "lay_out_files.py", "batch_fields.py", "*.h")
_DECLARED = ("backends/cuda/declarations.py", "backends/cuda/regions.py", "backends/cuda/shim.h")
UNIT = units.Unit("described", *_DECLARED, *(f"backends/cuda/jpeg/{name}" for name in _OWN), *SOURCES, seconds=4)
"""Compiled code that describes files for the kernels (``headers``, ``index``, ``layout``)."""
_read_headers = UNIT.function(
    "backends.cuda.jpeg.read_files", "read_headers", "u1[1] i8[1] i8[1] i8[2] i8[1] ?[1]w i8[2]w i8[3]w i8[2]w int"
)

Integers = npt.NDArray[np.int64]


def read(
    files: npt.NDArray[np.uint8], starts: Integers, sizes: Integers, boxes: Integers, channels: Integers
) -> tuple[npt.NDArray[np.bool_], Integers, Integers, Integers]:
    """Read the headers of n files.

    Args:
        files: uint8[...], all of them.
        starts, sizes: int64[n], bytes in ``files``.
        boxes: int64[n, 4], the regions (top, left, height, width) in pixels.
        channels: int64[n], the wanted channels: 3, or 1 of grey files.

    Returns:
        Whether the decoder takes each file, bool[n]; the headers, int64[n, HEADER_SIZE], as in
        ``accel.codec.jpeg.header``; the part of each component that the region needs, int64[n, 3, LAYOUT_SIZE], as in
        ``accel.codec.jpeg.layout``; and what ``layout.lay_out`` takes as ``files``.
    """
    count = len(starts)
    good = np.empty(count, np.bool_)
    headers = np.zeros((count, hd.HEADER_SIZE), np.int64)
    regions = np.zeros((count, 3, lo.LAYOUT_SIZE), np.int64)
    described = np.empty((count, 3), np.int64)
    _read_headers(files, starts, sizes, boxes, channels, good, headers, regions, described, MAX_FILE)
    return good, headers, regions, described
