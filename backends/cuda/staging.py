"""Buffers that a device may still be reading: handed out again only when it is done with them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch

from .device import Mark


class Ring:
    """A few host buffers, used again while they fit; what a giant batch needed is given back after a while."""

    _SMALLEST = 1 << 20
    _IDLE = 4
    _PATIENCE = 16  # takes for which an idle buffer may be of no use

    def __init__(self, allocate: Callable[[int], torch.Tensor]) -> None:
        """``allocate``: makes a uint8 tensor of a size."""
        self._allocate = allocate
        self._lock = threading.Lock()
        self._idle: list[tuple[int, Mark | None, torch.Tensor]] = []
        self._clock = 0

    def take(self, size: int) -> torch.Tensor:
        """A buffer of at least ``size`` bytes that nobody reads or writes."""
        with self._lock:
            self._clock += 1
            self._idle = [each for each in self._idle if self._clock - each[0] <= self._PATIENCE or not _done(each[1])]
            for number, (_, mark, buffer) in enumerate(self._idle):
                if size <= len(buffer) <= max(2 * size, self._SMALLEST) and _done(mark):
                    del self._idle[number]
                    return buffer
        return self._allocate(max(size + size // 4, self._SMALLEST))

    def give_back(self, buffer: torch.Tensor, mark: Mark | None) -> None:
        """Let others use it once ``mark`` is reached."""
        with self._lock:
            self._idle.append((self._clock, mark, buffer))
            while len(self._idle) > self._IDLE and _done(self._idle[0][1]):
                del self._idle[0]

    @property
    def idle_bytes(self) -> int:
        """What it keeps."""
        with self._lock:
            return sum(len(buffer) for _, _, buffer in self._idle)


def _done(mark: Mark | None) -> bool:
    return mark is None or mark.query()
