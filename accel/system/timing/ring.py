"""A ring: a few words of a process's row that one thread writes stages to as they end, with little work.

After work on images nothing of Python's is in the processor's caches, so the cost is the memory that is touched.
"""

from __future__ import annotations

from struct import Struct

import numpy as np
import numpy.typing as npt

MOST = 192
"""The number of entries that there is room for."""
WORDS = 3 + MOST
COUNT, UNTIL, IMAGES = range(3)
_HEADER = Struct("3q")
_ENTRIES = [Struct(f"{count}q") for count in range(4)]


class Ring:
    """Entries (as in ``clocks.Clock.done``), and the time and the number of images that the process's row is up to."""

    __slots__ = ("_bytes", "entries")

    def __init__(self, words: npt.NDArray[np.int64]) -> None:
        self._bytes = words.data.cast("B")
        self.entries: list[int] = []

    def put(self, *new: int, until: int = 0, images: int = 0) -> bool:
        """Write up to 3 entries, for which there must be room; return whether there is room for 3 more."""
        before, after = len(self.entries), len(self.entries) + len(new)
        _ENTRIES[len(new)].pack_into(self._bytes, _HEADER.size + 8 * before, *new)
        _HEADER.pack_into(self._bytes, 0, after, until, images)
        self.entries += new
        return after < MOST - 3

    def clear(self) -> None:
        """Remove all entries."""
        self.entries = []
        _HEADER.pack_into(self._bytes, 0, 0, 0, 0)
