"""Reused buffers for the files that are read.

Fresh pages are expensive: the operating system takes longer to hand out those of a 110 KB file than to fill them.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np

from accel.system.memory import Key, key_of


class _Buffer(bytearray):
    """One of a limited number of buffers of a size. ``free``: the unused ones; None in it: one that is not made yet.

    Attributes:
        place: the address of its bytes, int64 [1].
    """

    def __init__(self, free: list[_Buffer | None], size: int) -> None:
        self.free = free
        super().__init__(size)
        self.place = np.array([ctypes.addressof(ctypes.c_char.from_buffer(self))], np.int64)

    def __del__(self) -> None:
        self.free.insert(0, None)  # taken after all existing ones


def _taken(free: list[_Buffer | None], size: int) -> _Buffer | None:
    """Take an unused buffer; None if there is none."""
    try:
        return free.pop() or _Buffer(free, size)
    except IndexError:
        return None


class FileBuffers:
    """Buffers for whole files, which are used again; when all are in use, a file takes memory of its own, of its size.

    They are enough for the files of a batch that is being made, but not for a data set that is kept in memory.
    """

    SMALL, ORDINARY = 1 << 14, 1 << 18
    _SMALL_ONES, _ORDINARY_ONES = 128, 256  # the files of a large batch; with fewer, reading takes nearly twice as long

    def __init__(self) -> None:
        self._small: list[_Buffer | None] = [None] * self._SMALL_ONES
        self._ordinary: list[_Buffer | None] = [None] * self._ORDINARY_ONES

    def read(self, path: Any) -> tuple[bytes | bytearray, int, Key | None] | None:
        """Read a regular file: a buffer, how many of its first bytes are the content, and the file's key.

        Four system calls for an ordinary file: each also costs time later, by what it evicts from the caches.
        None if this fails for any reason: reading in the usual way will raise the error.
        """
        unused = buffer = _taken(self._ordinary, self.ORDINARY)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                known = os.fstat(descriptor)
                key = key_of(known)
                size = self.ORDINARY if buffer is None else os.preadv(descriptor, (buffer,), 0)
                if size < known.st_size:  # the file is large, or its file system returns less than it has
                    size = self.ORDINARY
                if buffer is not None and self.SMALL < size < self.ORDINARY:
                    unused = None
                    return buffer, size, key
                small = self._copied(buffer, size) if buffer is not None and size <= self.SMALL else None
                if small is not None:
                    return small, size, key
                content = _all_of(descriptor)
                return content, len(content), key
            finally:
                os.close(descriptor)
        except (OSError, AttributeError, TypeError, ValueError):  # it is no path, or the system lacks these calls
            return None
        finally:
            self.give_back(unused)

    def take(self) -> _Buffer | None:
        """A buffer of ``ORDINARY`` bytes, to be given back after use; None if all are in use."""
        return _taken(self._ordinary, self.ORDINARY)

    def smaller(self, buffer: _Buffer, size: int) -> bytes | bytearray:
        """Copy the first ``size`` (<= ``SMALL``) bytes to smaller memory, and give the buffer back."""
        small = self._copied(buffer, size) or bytes(memoryview(buffer)[:size])
        self.give_back(buffer)
        return small

    def _copied(self, buffer: bytearray, size: int) -> _Buffer | None:
        small = _taken(self._small, self.SMALL)
        if small is not None:
            memoryview(small)[:size] = memoryview(buffer)[:size]
        return small

    def give_back(self, buffer: bytes | bytearray | None) -> None:
        """Give back a buffer, of which there must be no views any more; other objects are ignored."""
        free = getattr(buffer, "free", None)  # a finalizer calls this, so it uses no names of the module
        if free is not None:
            free.append(buffer)


def _all_of(descriptor: int) -> bytes:
    """A file's content, in memory of exactly its size."""
    size = os.fstat(descriptor).st_size
    content = os.pread(descriptor, size + 1, 0)
    while len(content) != size and (more := os.pread(descriptor, 16 << 20, len(content))):  # very large, or growing
        content += more
    return content


file_buffers = FileBuffers()
