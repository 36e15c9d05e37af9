"""Reused buffers for the files that are read.

Fresh pages are expensive: the operating system takes longer to hand out those of a 110 KB file than to fill them.
"""

from __future__ import annotations

import ctypes


class Buffer(bytearray):
    """One of a limited number of buffers of a size. ``free``: the unused ones; None in it: one that is not made yet.

    Attributes:
        address: the address of its bytes.
    """

    def __init__(self, free: list[Buffer | None], size: int) -> None:
        self.free = free
        super().__init__(size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self))

    def __del__(self) -> None:
        self.free.insert(0, None)  # taken after all existing ones


class FileBuffers:
    """Buffers for whole files, which are used again; when all are in use, a file takes memory of its own, of its size.

    They are enough for the files of a batch that is being made, but not for a data set that is kept in memory.
    """

    SMALL, ORDINARY = 1 << 14, 1 << 18
    _SMALL_ONES, _ORDINARY_ONES = 128, 256  # the files of a large batch; with fewer, reading takes nearly twice as long

    def __init__(self) -> None:
        self._small: list[Buffer | None] = [None] * self._SMALL_ONES
        self._ordinary: list[Buffer | None] = [None] * self._ORDINARY_ONES

    def take(self) -> Buffer | None:
        """A buffer of ``ORDINARY`` bytes, to be given back after use; None if all are in use."""
        return _taken(self._ordinary, self.ORDINARY)

    def fitting(self, buffer: Buffer, size: int) -> bytes | bytearray:
        """A buffer's first ``size`` bytes, in memory not much larger: itself, or a copy, and it is given back."""
        if size > self.SMALL:
            return buffer
        content, small = memoryview(buffer)[:size], _taken(self._small, self.SMALL)
        if small is not None:
            memoryview(small)[:size] = content
        copied = bytes(content) if small is None else small
        content.release()
        self.give_back(buffer)
        return copied

    def give_back(self, buffer: bytes | bytearray | None) -> None:
        """Give back a buffer, of which there must be no views any more; other objects are ignored."""
        free = getattr(buffer, "free", None)  # a finalizer calls this, so it uses no names of the module
        if free is not None:
            free.append(buffer)


def _taken(free: list[Buffer | None], size: int) -> Buffer | None:
    """Take an unused buffer; None if there is none."""
    try:
        return free.pop() or Buffer(free, size)
    except IndexError:
        return None


file_buffers = FileBuffers()
