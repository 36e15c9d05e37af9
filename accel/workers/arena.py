"""Shared memory of a DataLoader: one anonymous file in which any of its workers takes a slot, and its parent frees it.

A free slot is taken by the worker that comes next, whoever had it before: so there are as many slots as there are
batches at a time, which is as much memory as torch takes. A slot that has not been taken for long gives its pages back.

The worker that took a slot writes how many tensors it sent in it, and whether it still looks at it; the parent writes
how many of these tensors are gone. Each number has one writer at a time, and only taking a slot needs the lock.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np
import numpy.typing as npt

from accel.system import memory

SLOTS = 255
_CHUNK = 1 << 26  # the first part of the file that is mapped; each further one is twice as large
_SECONDS = 2.0  # to wait for the lock: longer only where who held it was killed
_COLUMNS = 8
_CLOCK, _END = -2, -1  # behind the columns: how often slots were taken, and where the next one begins


class Arena:
    """Slots in shared memory, the same ones in every process that has the arena.

    Attributes, one number for each slot: ``offset`` and ``room``: its addresses in the file; ``size``: how much of them
    has pages; ``busy``: whether the worker that took it looks at it; ``sent``, ``ended``: tensors in it that were sent,
    and those that the parent looks at no more; ``taken``: when, by the number of slots taken; ``pages``: how often its
    pages went back to the system.
    """

    def __init__(self, file: Any, lock: Any) -> None:
        """``file``: its descriptor, owned from now on, or one that is sent; ``lock``: of multiprocessing."""
        self._file, self._lock = file if isinstance(file, int) else file.detach(), lock
        self._chunks: dict[int, mmap.mmap] = {}
        self._table = self.part(0, _TABLE).view(np.int64)
        columns: Iterable[npt.NDArray[np.int64]] = self._table[:_CLOCK].reshape(_COLUMNS, SLOTS)
        self.offset, self.room, self.size, self.busy, self.sent, self.ended, self.taken, self.pages = columns

    @classmethod
    def make(cls, context: Any) -> Arena | None:
        """A new one for processes of a multiprocessing context; None where the system has no such files or locks."""
        try:
            arena = cls(memory.anonymous_file(_CHUNK), context.Lock())
        except (OSError, AttributeError, ImportError):
            return None
        arena._table[_END] = _whole(_TABLE)
        return arena

    def __reduce__(self) -> tuple[Any, ...]:
        return Arena, (DupFd(self._file), self._lock)

    def __del__(self) -> None:
        os.close(self._file)

    def part(self, offset: int, size: int) -> npt.NDArray[np.uint8]:
        """A part of the memory; it lies within one chunk."""
        memory, start = self._mapped(offset)
        return np.frombuffer(memory, np.uint8, size, start)

    def _mapped(self, offset: int) -> tuple[mmap.mmap, int]:
        """The chunk that a part of the file lies in, and where in it."""
        number = (offset // _CHUNK + 1).bit_length() - 1
        start = _CHUNK * ((1 << number) - 1)
        chunk = self._chunks.get(number)
        if chunk is None:
            chunk = self._chunks[number] = mmap.mmap(self._file, _CHUNK << number, offset=start)
        return chunk, offset - start

    # -- a worker ---------------------------------------------------------------------------------------------

    def take(self, size: int) -> int | None:
        """The number of a slot of so many bytes, busy; None if there is no memory for it, or no slot."""
        if not self._lock.acquire(timeout=_SECONDS):
            return None
        try:
            self._table[_CLOCK] += 1
            slot = self._free(size)
            if slot is None:
                return None
            self.taken[slot], self.busy[slot] = self._table[_CLOCK], 1
        except OSError:  # the file cannot be made as large
            return None
        finally:
            self._lock.release()
        if not self.size[slot]:
            self.size[slot] = _whole(size)
            try:  # without this, the first write to a page that there is no memory for would end the process
                self._mapped(int(self.offset[slot]))
                os.posix_fallocate(self._file, int(self.offset[slot]), _whole(size))
            except OSError:
                self.give_back(slot)
                self.busy[slot] = 0
                return None
        return slot

    def _free(self, size: int) -> int | None:
        """A free slot with fitting pages, or none and room for them; the lock is held."""
        size = _whole(size)
        free = (self.busy == 0) & (self.sent == self.ended)
        filled = free & (self.size > 0)
        fitting = np.flatnonzero(filled & (self.size >= size) & (self.size <= 2 * size))
        best = min(fitting, key=lambda slot: (self.size[slot], -self.taken[slot]), default=None)
        patience = 16 + 2 * int(np.count_nonzero(~free))  # what takes turns with all others is taken more often
        for slot in np.flatnonzero(filled & (self._table[_CLOCK] - self.taken > patience)):
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
            empty = idle[np.argsort(self.taken[idle])]
            self.give_back(empty[0])
        self._place(empty[0], size)
        return int(empty[0])

    def _place(self, slot: np.int64, size: int) -> None:
        """Give a slot addresses of its own, behind all others and inside one chunk; the lock is held."""
        offset, chunk = int(self._table[_END]), 0
        while offset + size > (end := _CHUNK * ((2 << chunk) - 1)):
            chunk += 1
            offset = max(offset, end)
        if os.fstat(self._file).st_size < end:
            os.ftruncate(self._file, end)
        self.offset[slot], self.room[slot], self._table[_END] = offset, size, offset + size

    # -- a worker, or the parent ------------------------------------------------------------------------------

    def give_back(self, slot: int | np.int64) -> None:
        """Have the system take a slot's pages."""
        chunk, start = self._mapped(int(self.offset[slot]))
        with suppress(OSError):  # a system that cannot: they go with the file
            chunk.madvise(mmap.MADV_REMOVE, start, int(self.size[slot]))
        self.size[slot] = 0
        self.pages[slot] += 1


def _whole(size: int) -> int:
    """In whole pages, at least one."""
    return -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE


_TABLE = (_COLUMNS * SLOTS + 2) * 8
