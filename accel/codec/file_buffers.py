"""Reused buffers for the files that are read.

Fresh pages are dear: the operating system takes longer to hand out those of a 110 KB file than to fill them.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np

from accel.system.memory import Key, key_of


class _Buffer(bytearray):
    """One of at most so many of a size, of which ``free`` has those that nobody uses; None: yet to be made.

    Attributes:
        place: the address of its bytes, int64 [1].
    """

    def __init__(self, free: list[_Buffer | None], size: int) -> None:
        self.free = free
        super().__init__(size)
        self.place = np.array([ctypes.addressof(ctypes.c_char.from_buffer(self))], np.int64)

    def __del__(self) -> None:
        self.free.insert(0, None)  # behind those that are there


def _taken(free: list[_Buffer | None], size: int) -> _Buffer | None:
    """A buffer that nobody uses; None if there is none."""
    try:
        return free.pop() or _Buffer(free, size)
    except IndexError:
        return None


class FileBuffers:
    """Buffers for whole files, used again; what is read beyond these takes memory of its own, as much as it has bytes.

    A batch under way has its files in buffers. Of a data set that is kept in memory few are.
    """

    SMALL, ORDINARY = 1 << 14, 1 << 18
    _SMALL_ONES, _ORDINARY_ONES = 128, 256  # as many as a large batch has: without, reading takes nearly twice as long

    def __init__(self) -> None:
        self._small: list[_Buffer | None] = [None] * self._SMALL_ONES
        self._ordinary: list[_Buffer | None] = [None] * self._ORDINARY_ONES

    def read(self, path: Any) -> tuple[bytes | bytearray, int, Key | None] | None:
        """The content of a regular file, in the first bytes of what is returned, how many they are, and the file's key.

        Four system calls for an ordinary file: each costs more than it takes, in what it throws out of the caches.
        None where this fails, for whatever reason: reading in the usual way will tell.
        """
        unused = buffer = _taken(self._ordinary, self.ORDINARY)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                known = os.fstat(descriptor)
                key = key_of(known)
                size = self.ORDINARY if buffer is None else os.preadv(descriptor, (buffer,), 0)
                if size < known.st_size:  # it is large, or its file system gives less than it has
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
        except (OSError, AttributeError, TypeError, ValueError):  # no path; not every system has these calls
            return None
        finally:
            self.give_back(unused)

    def take(self) -> _Buffer | None:
        """A buffer of ``ORDINARY`` bytes, to be given back; None where all are in use."""
        return _taken(self._ordinary, self.ORDINARY)

    def smaller(self, buffer: _Buffer, size: int) -> bytes | bytearray:
        """The first few bytes in memory that others need less, and the buffer given back."""
        small = self._copied(buffer, size) or bytes(memoryview(buffer)[:size])
        self.give_back(buffer)
        return small

    def _copied(self, buffer: bytearray, size: int) -> _Buffer | None:
        small = _taken(self._small, self.SMALL)
        if small is not None:
            memoryview(small)[:size] = memoryview(buffer)[:size]
        return small

    def give_back(self, buffer: bytes | bytearray | None) -> None:
        """Let others use a buffer, which nobody may look at any more."""
        if type(buffer) is _Buffer:
            buffer.free.append(buffer)


def _all_of(descriptor: int) -> bytes:
    """A file's content, in memory of just that size."""
    size = os.fstat(descriptor).st_size
    content = os.pread(descriptor, size + 1, 0)
    while len(content) != size and (more := os.pread(descriptor, 16 << 20, len(content))):  # very large, or growing
        content += more
    return content


file_buffers = FileBuffers()
