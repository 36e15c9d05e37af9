"""Pinned host buffers, handed out again when the device is done with reading them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from accel.backends.cuda.device import Mark
from accel.system import fork


class PinnedPool:
    """A few host buffers, used again while they fit; what a giant batch needed is given back after a while.

    Their sizes are powers of two, to which torch rounds pinned memory anyway.
    """

    _SMALLEST = 1 << 20
    _MOST = 4  # beyond, the oldest is waited for
    _PATIENCE = 16  # takes for which a buffer may be of no use
    _GIANT = 1 << 28

    def __init__(self, allocate: Callable[[int], torch.Tensor], trim: Callable[[], None] = lambda: None) -> None:
        """``allocate``: makes a uint8 tensor of a size. ``trim``: called when the last giant buffer was let go."""
        self._allocate, self._trim = allocate, trim
        self._lock = fork.Lock()
        self._given_back: list[_Buffer] = []
        self._clock = 0

    def take(self, size: int) -> torch.Tensor:
        """A buffer of at least ``size`` bytes that nobody reads or writes."""
        had_giant = self._has_giant()
        found = self._find(size)
        if had_giant and not self._has_giant() and (found is None or len(found) < self._GIANT):
            self._trim()
        return self._allocate(max(1 << (size - 1).bit_length(), self._SMALLEST)) if found is None else found

    def _has_giant(self) -> bool:
        with self._lock:
            return any(len(buffer.memory) >= self._GIANT for buffer in self._given_back)

    def _find(self, size: int) -> torch.Tensor | None:
        with self._lock:
            self._clock += 1
            self._given_back = [
                each for each in self._given_back if self._clock - each.since <= self._PATIENCE or not each.free
            ]
            fits = range(size, max(4 * size, self._SMALLEST) + 1)
            for number, buffer in enumerate(self._given_back):
                if len(buffer.memory) in fits and buffer.free:
                    return self._given_back.pop(number).memory
            oldest = self._given_back.pop(0) if len(self._given_back) >= self._MOST else None
        if oldest is not None:
            oldest.wait()
            if len(oldest.memory) in fits:
                return oldest.memory
        return None

    def give_back(self, memory: torch.Tensor, mark: Mark | None) -> None:
        """Let others use it once ``mark`` is reached."""
        with self._lock:
            self._given_back.append(_Buffer(self._clock, mark, memory))

    @property
    def kept(self) -> int:
        """The bytes it keeps for others."""
        with self._lock:
            return sum(len(buffer.memory) for buffer in self._given_back)


class _Buffer(NamedTuple):
    since: int
    mark: Mark | None
    memory: torch.Tensor

    @property
    def free(self) -> bool:
        return self.mark is None or self.mark.query()

    def wait(self) -> None:
        if self.mark is not None:
            self.mark.synchronize()
