"""Pinned host buffers that are reused when the device has finished reading them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from accel.backends.cuda.device import Mark
from accel.system import fork


class PinnedPool:
    """A few host buffers, reused while their sizes fit; those of a giant batch are released after a while.

    Their sizes are powers of two, to which torch rounds pinned memory anyway.
    """

    _SMALLEST = 1 << 20
    _MOST = 4  # with so many buffers the oldest is waited for
    _PATIENCE = 16  # calls of ``take`` for which a buffer may stay unused
    _GIANT = 1 << 28

    def __init__(self, allocate: Callable[[int], torch.Tensor], trim: Callable[[], None] = lambda: None) -> None:
        """``allocate``: returns a uint8 tensor of a size. ``trim``: called when the last giant buffer was released."""
        self._allocate, self._trim = allocate, trim
        self._lock = fork.Lock()
        self._given_back: list[_Buffer] = []  # the oldest first
        self._has_giants = False
        self._clock = 0

    def take(self, size: int) -> torch.Tensor:
        """A buffer of at least ``size`` bytes that is not in use; may wait for one."""
        largest = max(4 * size, self._SMALLEST)
        with self._lock:
            found = self._find(size, largest)
            had_giants, self._has_giants = self._has_giants, self._has_giants and self._giants > 0
        trims = had_giants and not self._has_giants and (found is None or found.size < self._GIANT)
        if found is not None and found.mark is not None and not found.mark.query():
            found.mark.synchronize()
        if trims:
            self._trim()
        if found is None or not size <= found.size <= largest:
            return self._allocate(max(1 << (size - 1).bit_length(), self._SMALLEST))
        return found.memory

    @property
    def _giants(self) -> int:
        return sum(each.size >= self._GIANT for each in self._given_back)

    def _find(self, size: int, largest: int) -> _Buffer | None:
        """A free buffer that fits, or the oldest of too many, fitting or not; else None. The lock must be held."""
        self._clock += 1
        before = self._clock - self._PATIENCE
        if self._given_back and self._given_back[0].since < before:
            self._given_back = [each for each in self._given_back if each.since >= before or not each.free]
        for number, each in enumerate(self._given_back):
            if size <= each.size <= largest and each.free:
                return self._given_back.pop(number)
        return self._given_back.pop(0) if len(self._given_back) >= self._MOST else None

    def give_back(self, memory: torch.Tensor, mark: Mark | None) -> None:
        """Give a buffer back, to be reused once ``mark`` is reached."""
        size = memory.numel()
        with self._lock:
            self._given_back.append(_Buffer(self._clock, mark, memory, size))
            self._has_giants = self._has_giants or size >= self._GIANT

    @property
    def kept(self) -> int:
        """The bytes of the buffers that were given back."""
        with self._lock:
            return sum(each.size for each in self._given_back)


class _Buffer(NamedTuple):
    since: int
    mark: Mark | None
    memory: torch.Tensor
    size: int

    @property
    def free(self) -> bool:
        return self.mark is None or self.mark.query()
