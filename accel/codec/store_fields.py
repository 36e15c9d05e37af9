"""What is where in a store's memory and in its users' (``store``, ``store_kernels``)."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

PAGE, WINDOW, SEGMENT = 4096, 8, 1 << 14
"""Bytes, slots of a key in a table, and bytes."""

HASH, SIZE, HEAD = 5, 5, 6
"""Words: of a key that its hash follows; of an entry, where its size and checksum are, and how many come before its
content."""

TOKEN, AT, END, OWNER = range(4)
"""Words of what a thread knows of the segment that it fills: how it is marked as this thread's, where its next entry
lies and where it ends (bytes), and the word that is marked."""

OWNERS, SEGMENTS, DATA = range(3)
"""Of the layout of a store: the first word that says whose a segment is, how many there are, the first word of all."""


@cache
def crc_tables() -> npt.NDArray[np.uint32]:
    """What eight bytes at once add to ``zlib.crc32``: for each its place from the end, [8, 256]."""
    tables = np.arange(256, dtype=np.uint32)[None].repeat(8, 0)
    for _ in range(8):
        tables[0] = np.where(tables[0] & 1, tables[0] >> 1 ^ 0xEDB88320, tables[0] >> 1)
    for place in range(1, 8):
        tables[place] = tables[place - 1] >> 8 ^ tables[0][tables[place - 1] & 0xFF]
    return tables
