"""The layout, in words of 64 bits, of the row that each process measures into and of the block of all rows.

``accel.system.timing.measuring`` writes and reads it.
"""

from __future__ import annotations

from struct import Struct

import numpy as np
import numpy.typing as npt

from accel.system.timing.clocks import STAGES, WIDTH

HEADER = ["generation", "pid", "start_ns", "until_ns", "cpu_ns", "delayed_ns", "threads", "images", "draws", "ns"]
HEADER += ["before_cpu_ns", "delayed_images"]  # CPU time before the row was made; images when ``delayed_ns`` was read
HEADER += ["system_ns", "firsts", "first_cpu_ns", "first_system_ns", "first_images"]  # in ``cpu_ns``; first batches
GENERATION, PID, START, UNTIL, PROCESS_CPU, DELAYED, THREADS, IMAGES, DRAWS, SPAN = range(10)
BEFORE, DELAYED_IMAGES, SYSTEM, FIRSTS, FIRST_CPU, FIRST_SYSTEM, FIRST_IMAGES = range(10, 17)
WRITING = 17  # odd while the row is being written
SUMS_BEGIN = 18
RINGS_BEGIN = SUMS_BEGIN + 2 * len(STAGES) * WIDTH
RING_COUNT, RING_UNTIL, RING_IMAGES, RING_BEGIN = range(4)
RING = RING_BEGIN + 192
TEXTS_BEGIN = RINGS_BEGIN + 2 * RING
TEXTS, TEXT = 24, np.dtype("S248")
"""Statements of the user's that a process was found at: the most of them, and the longest name."""

ROWS, ROW = 512, TEXTS_BEGIN + TEXTS * (TEXT.itemsize // 8 + 1)
CONTROL, FOLDER = 128, 8
"""The number of words ahead of the rows, and the first of those that name the folder of events."""

_ENTRIES = [Struct(f"{count}q") for count in range(4)]


class Ring:
    """A few words of a process's row that one thread writes stages to as they end, with little work: entries (as in
    ``clocks.Clock.done``), and the time and the number of images that the row is up to.

    After work on images nothing of Python's is in the processor's caches, so the cost is the memory that is touched.
    """

    def __init__(self, words: npt.NDArray[np.int64]) -> None:
        self._bytes = words.data.cast("B")
        self.entries: list[int] = []

    def put(self, *new: int, until: int = 0, images: int = 0) -> bool:
        """Write up to 3 entries, for which there must be room; return whether there is room for 3 more."""
        before, after = len(self.entries), len(self.entries) + len(new)
        _ENTRIES[len(new)].pack_into(self._bytes, 8 * (RING_BEGIN + before), *new)
        _ENTRIES[3].pack_into(self._bytes, 0, after, until, images)
        self.entries += new
        return RING_BEGIN + after < RING - 3

    def clear(self) -> None:
        """Remove all entries."""
        self.entries = []
        _ENTRIES[3].pack_into(self._bytes, 0, 0, 0, 0)
