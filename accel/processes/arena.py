"""Shared memory of a DataLoader: one anonymous file in which any of its workers takes slots, and the parent frees them.

A free slot is taken by the next worker, whichever had it before: so there are as many slots as batches at a time, which
is as much memory as torch takes. A slot that has not been taken for long gives its pages back to the system.

The worker that took a slot writes the number of tensors that it sent in it, and whether it still uses it; the parent
writes how many of these tensors are gone. Each number has one writer at a time, and only taking a slot needs the lock.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.reduction import DupFd
from time import perf_counter_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from accel.system import memory

SLOTS = 255
_CHUNK = 1 << 26  # the first part of the file that is mapped; each further one is twice as large
_SECONDS = 2.0  # to wait for the lock: it takes longer only if its holder was killed
_COLUMNS = 13
_DEVICE, _USE, _CLOCK, _END = -6, -3, -2, -1  # after the columns; the last: slots taken, where the next one begins


class Arena:
    """Slots in shared memory, the same ones in every process that has the arena.

    Attributes, each an int64 [SLOTS]: ``offset`` and ``room``: a slot's address range in the file; ``size``: the bytes
    of it that have pages; ``busy``: whether the worker that took it still uses it; ``sent``, ``ended``: the number of
    tensors in it that were sent, and of those that are gone in the parent; ``taken_at``: when it was taken, by the
    number of slots taken until then; ``pages``: how often its pages were given back to the system.

    ``about``, int64 [4, SLOTS], for ``accel.explain``: the number of the worker that computed the tensor in a slot, of
    its images, of those that fell back, and of the threads that computed them.
    ``use``, int64 [1]: how batches are used (``processes.uses``), which the parent writes.
    ``device``, int64 [3]: see ``worker_threads.devices``. ``made``, int64 [SLOTS]: the batches that a worker sent for a
    device, by its number.
    """

    def __init__(self, file: Any, lock: Any) -> None:
        """``file``: its descriptor, which this object then owns, or one that was sent; ``lock``: multiprocessing's."""
        self._file, self._lock = file if isinstance(file, int) else file.detach(), lock
        self._chunks: dict[int, mmap.mmap] = {}
        self._table = self.part(0, _TABLE).view(np.int64)
        columns: npt.NDArray[np.int64] = self._table[:_DEVICE].reshape(_COLUMNS, SLOTS)
        self.device, self.use = self._table[_DEVICE:_USE], self._table[_USE:_CLOCK]
        self.offset, self.room, self.size, self.busy, self.sent, self.ended, self.taken_at, self.pages = columns[:8]
        self.about, self.made = columns[8:12], columns[12]

    @classmethod
    def make(cls, context: Any) -> Arena | None:
        """A new arena for processes of a multiprocessing context; None if the system has no such files or locks."""
        try:
            arena = cls(memory.anonymous_file(_CHUNK), context.Lock())
        except (OSError, AttributeError, ImportError):
            return None
        arena._table[_END] = _whole(_TABLE)
        return arena

    def __reduce__(self) -> tuple[Any, ...]:
        return Arena, (DupFd(self._file), self._lock)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self._file)

    def part(self, offset: int, size: int) -> npt.NDArray[np.uint8]:
        """A part of the memory, uint8 [size], which must lie within one chunk."""
        memory, start = self._mapped(offset)
        return np.frombuffer(memory, np.uint8, size, start)

    def _mapped(self, offset: int) -> tuple[mmap.mmap, int]:
        """The chunk that has an offset of the file, and the offset in it."""
        number = (offset // _CHUNK + 1).bit_length() - 1
        start = _CHUNK * ((1 << number) - 1)
        chunk = self._chunks.get(number)
        if chunk is None:
            chunk = self._chunks[number] = mmap.mmap(self._file, _CHUNK << number, offset=start)
        return chunk, offset - start

    # -- in a worker ------------------------------------------------------------------------------------------

    def backlog(self) -> float:
        """The seconds for which the device has work: the batches that it has, those on the way to it, and a third of
        one, for which it may wait rather than be given more."""
        arrived, until, takes = self.device.tolist()
        return float((self.made.sum() - arrived + 1 / 3) * takes + max(until - perf_counter_ns(), 0)) / 1e9

    def take(self, size: int) -> int | None:
        """Take a slot of so many bytes, which is then busy; return its number, None: no memory or no slot is free."""
        if not self._lock.acquire(timeout=_SECONDS):
            return None
        try:
            self._table[_CLOCK] += 1
            slot = self._free(size)
            if slot is None:
                return None
            self.taken_at[slot], self.busy[slot] = self._table[_CLOCK], 1
        except OSError:  # the file cannot be made large enough
            return None
        finally:
            self._lock.release()
        if not self.size[slot]:
            self.size[slot] = _whole(size)
            try:  # else a first write to a page could find no memory, which ends the process
                self._mapped(int(self.offset[slot]))
                os.posix_fallocate(self._file, int(self.offset[slot]), _whole(size))
            except OSError:
                self.give_back(slot)
                self.busy[slot] = 0
                return None
        return slot

    def _free(self, size: int) -> int | None:
        """A free slot with pages of a fitting size, else one without pages and with room for them; None: there is none.

        The caller holds the lock."""
        size = _whole(size)
        free = (self.busy == 0) & (self.sent == self.ended)
        filled = free & (self.size > 0)
        fitting = np.flatnonzero(filled & (self.size >= size) & (self.size <= 2 * size))
        best = min(fitting, key=lambda slot: (self.size[slot], -self.taken_at[slot]), default=None)
        patience = 16 + 2 * int(np.count_nonzero(~free))  # slots that are used in turns are taken more often
        for slot in np.flatnonzero(filled & (self._table[_CLOCK] - self.taken_at > patience)):
            if slot != best:
                self.give_back(slot)
        if best is not None:
            return int(best)
        empty = np.flatnonzero(free & (self.size == 0))
        roomy = empty[self.room[empty] >= size]
        if len(roomy):
            return int(roomy[np.argmin(self.room[roomy])])
        if not len(empty):
            idle = np.flatnonzero(free)
            if not len(idle):
                return None
            empty = idle[np.argsort(self.taken_at[idle])]
            self.give_back(empty[0])
        self._place(empty[0], size)
        return int(empty[0])

    def _place(self, slot: np.int64, size: int) -> None:
        """Give a slot a new address range, after all others and inside one chunk; the caller holds the lock."""
        offset, chunk = int(self._table[_END]), 0
        while offset + size > (end := _CHUNK * ((2 << chunk) - 1)):
            chunk += 1
            offset = max(offset, end)
        if os.fstat(self._file).st_size < end:
            os.ftruncate(self._file, end)
        self.offset[slot], self.room[slot], self._table[_END] = offset, size, offset + size

    # -- in a worker or the parent ----------------------------------------------------------------------------

    def give_back(self, slot: int | np.int64) -> None:
        """Give a slot's pages back to the system."""
        chunk, start = self._mapped(int(self.offset[slot]))
        with suppress(OSError):  # if the system cannot: they are freed with the file
            chunk.madvise(mmap.MADV_REMOVE, start, int(self.size[slot]))
        self.size[slot] = 0
        self.pages[slot] += 1


def _whole(size: int) -> int:
    """A size rounded up to whole pages, at least one."""
    return -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE


_TABLE = (_COLUMNS * SLOTS + 6) * 8
