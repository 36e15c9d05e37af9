"""A few words of a process's row, to which one thread writes stages as they end: little is done for it.

Behind work on images nothing of Python's is in the processor's caches, so what counts is how much is touched.
"""

from __future__ import annotations

from struct import Struct

import numpy as np
import numpy.typing as npt

MOST = 192
"""Entries that there is room for."""
WORDS = 3 + MOST
COUNT, UNTIL, IMAGES = range(3)
_HEADER = Struct("3q")
_ENTRIES = [Struct(f"{count}q") for count in range(4)]


class Ring:
    """Entries (``clocks.Clock.done``), and until when, and how many images, all that the process has measured is."""

    __slots__ = ("_bytes", "entries")

    def __init__(self, words: npt.NDArray[np.int64]) -> None:
        self._bytes = words.data.cast("B")
        self.entries: list[int] = []

    def put(self, *new: int, until: int = 0, images: int = 0) -> bool:
        """Write some, whose room the caller has seen to; whether there will be room for as many again."""
        before, after = len(self.entries), len(self.entries) + len(new)
        _ENTRIES[len(new)].pack_into(self._bytes, _HEADER.size + 8 * before, *new)
        _HEADER.pack_into(self._bytes, 0, after, until, images)
        self.entries += new
        return after < MOST - 3

    def clear(self) -> None:
        """Forget what was written."""
        self.entries = []
        _HEADER.pack_into(self._bytes, 0, 0, 0, 0)
