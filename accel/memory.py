"""Host memory: tensors that cross a process border, and reused buffers for the files that are read.

Fresh pages are dear: for a 110 KB file the kernel takes three times as long to hand them out as to fill them.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from math import prod
from typing import Any

import torch


def shared(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """An uninitialised tensor in shared memory: sending it to another process sends a handle."""
    storage = torch.UntypedStorage._new_shared(prod(shape) * dtype.itemsize)
    return torch.empty(0, dtype=dtype).set_(storage, 0, tuple(shape))  # type: ignore[call-overload,no-any-return]


_KEPT = 64 << 20
_LARGEST = 4 << 20


class FileBuffers:
    """Buffers of sizes 2**n for whole files; at most ``_KEPT`` bytes of them lie idle."""

    def __init__(self) -> None:
        self._idle: dict[int, deque[bytearray]] = {}
        self._idle_bytes = 0

    def read(self, path: Any) -> tuple[bytearray, int]:
        """The content of the file at ``path``, in the first bytes of a buffer, and how many they are.

        Raises:
            OSError: what ``open`` raises.
        """
        with open(path, "rb", buffering=0) as file:
            expected = os.fstat(file.fileno()).st_size
            buffer = self._take(expected)
            size = file.readinto(memoryview(buffer)[:expected])
            if size < expected or not expected:  # it grows, shrinks or is no regular file
                rest = file.readall() or b""
                buffer = buffer[:size] + rest
                size = len(buffer)
            return buffer, size

    def give_back(self, buffer: bytearray) -> None:
        """Let others use a buffer, which nobody may look at any more."""
        capacity = len(buffer)
        if capacity & (capacity - 1) or capacity > _LARGEST or self._idle_bytes + capacity > _KEPT:
            return
        self._idle_bytes += capacity
        self._idle.setdefault(capacity, deque()).append(buffer)

    def _take(self, size: int) -> bytearray:
        capacity = 1 << max(size - 1, 1).bit_length()
        try:
            buffer = self._idle[capacity].pop()
        except (KeyError, IndexError):
            return bytearray(capacity)
        self._idle_bytes -= capacity
        return buffer


file_buffers = FileBuffers()
