"""Decoded pictures that are kept: those of sources that are asked for again and again, as Pillow's images would be.

A picture goes with its source. All of a process together take no more than their share of the machine's memory; what
comes when it is full is decoded each time, unless a picture has not been looked at for long, which then makes room.
"""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
from torch.utils.data import get_worker_info

from accel.recipe import Source
from accel.system import cores, counters, fork

Pixels = npt.NDArray[np.uint8]

SHARE = 8
"""The workers of a DataLoader together keep one part in so many of the memory, and so does their parent."""

_IDLE = 300.0  # seconds


class Picture:
    """``pixels``: uint8 [height, width, channels], of as many channels as the file has; None: not (to be) had."""

    __slots__ = ("lock", "pixels", "tried", "used")

    def __init__(self) -> None:
        self.lock = fork.Lock()
        self.tried = False
        self.pixels: Pixels | None = None
        self.used = time.monotonic()


class _Shelf:
    """The pictures of a process. A forked child begins with none: those of its parent stay where they are, shared."""

    def __init__(self) -> None:
        self._lock = fork.Lock()
        self._places: dict[int, tuple[weakref.ref[Source], int]] = {}
        self._gone: deque[int] = deque()  # sources that died, wherever the garbage collector found them
        self._number = 0
        self._bytes = 0
        self._tidied = 0.0

    def place(self, source: Source, size: int) -> Picture | None:
        """The place of a source's picture, there or to come; None where there is no room for its bytes."""
        with self._lock:
            found: Picture | None = source.picture
            if found is not None:  # another thread was faster
                return found
            while self._gone:
                self._let_go(self._gone.popleft())
            if self._bytes + size > limit():
                self._let_idle_ones_go()
            if self._bytes + size > limit():
                return None
            self._number += 1
            gone, number = self._gone, self._number
            # what is called then may run inside any allocation, and must not wait for the lock
            self._places[number] = weakref.ref(source, lambda _: gone.append(number)), size
            self._bytes += size
            made = source.picture = Picture()
            return made

    def _let_idle_ones_go(self) -> None:
        now = time.monotonic()
        if now - self._tidied < _IDLE / 10:
            return
        self._tidied = now
        for number, (reference, _) in list(self._places.items()):
            source = reference()
            if source is not None and source.picture.used < now - _IDLE:
                source.picture = None
                self._let_go(number)

    def _let_go(self, number: int) -> None:
        _, size = self._places.pop(number, (None, 0))
        self._bytes -= size


_shelf = _Shelf()
fork.register(in_child=_shelf.__init__)  # type: ignore[misc]


def pixels(source: Source, size: int, decoded: Callable[[], Pixels | None]) -> Pixels | None:
    """The picture of a source, which is kept from now on; read-only.

    None where there is no room for its ``size`` bytes, or it could not be decoded.
    """
    picture = source.picture or _shelf.place(source, size)
    if picture is None:
        return None
    if not picture.tried:
        with picture.lock:
            if not picture.tried:
                found = decoded()
                if found is not None:
                    found.flags.writeable = False
                    counters.count(counters.KEPT)
                picture.pixels, picture.tried = found, True
    picture.used = time.monotonic()
    return picture.pixels


def values_fit(size: int) -> bool:
    """Whether a sample's values may take the place of what they are computed from, somebody having kept the sample.

    As in torchvision's own; but what a worker inherited without values each worker would have for itself.
    """
    global _values
    if get_worker_info() is None:
        return True
    if _values + size > limit():
        return False
    _values += size
    return True


_values = 0


def limit() -> int:
    """The bytes that this process keeps at most: its share among the workers of a DataLoader, and torchrun's ranks."""
    worker = get_worker_info()
    processes = (worker.num_workers if worker else 1) * cores.ranks()
    return memory() // SHARE // max(processes, 1)


@cache
def memory() -> int:
    """The bytes of memory of this machine, or of this container if they are fewer."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    said = cores.of_groups("memory", "memory.limit_in_bytes", "memory.max")
    return min([machine, *(int(text) for text in said if text.strip().isdigit())])
