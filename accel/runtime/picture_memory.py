"""Decoded pictures that are kept in memory: those of sources whose pixels are asked for repeatedly.

A picture lives as long as its source. All pictures of a process together take no more than a share of the machine's
memory; when that is full, new ones are not kept.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
from torch.utils.data import get_worker_info

from accel.recipes.recipe import Source
from accel.system import cores, counters, fork

Pixels = npt.NDArray[np.uint8]

SHARE = 8
"""All workers of a DataLoader together keep one part in so many of the memory, and their parent as much."""


class Picture:
    """A kept picture. ``pixels``: uint8 [height, width, channels of the file]; None if not yet, or not, decoded."""

    __slots__ = ("lock", "pixels", "tried")

    def __init__(self) -> None:
        self.lock = fork.Lock()
        self.tried = False
        self.pixels: Pixels | None = None


class _Memory:
    """All pictures of a process. A forked child counts none: its parent's pictures stay in shared memory pages."""

    def __init__(self) -> None:
        self._lock = fork.Lock()
        self._gone: deque[int] = deque()  # the bytes of sources that died, noted by the garbage collector
        self._bytes = 0

    def place(self, source: Source, size: int) -> Picture | None:
        """The picture of a source, which may not be decoded yet; None if there is no room for its ``size`` bytes."""
        with self._lock:
            found: Picture | None = source.picture
            if found is not None:  # another thread was faster
                return found
            while self._gone:
                self._bytes -= self._gone.popleft()
            if self._bytes + size > limit():
                return None
            self._bytes += size
            # it may run inside any allocation, so it must not wait for the lock
            weakref.finalize(source, self._gone.append, size).atexit = False
            made = source.picture = Picture()
            return made


_all = _Memory()
fork.register(in_child=_all.__init__)  # type: ignore[misc]


def pixels(source: Source, size: int, decoded: Callable[[], Pixels | None]) -> Pixels | None:
    """The read-only picture of a source, which is kept from now on.

    None if there is no room for its ``size`` bytes, or it cannot be decoded.
    """
    picture = source.picture or _all.place(source, size)
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
    return picture.pixels


def values_fit(size: int) -> bool:
    """Whether the values of a sample that a dataset keeps may be stored in it, in place of its recipe.

    In the main process always, as with torchvision's own samples. In a worker only within ``limit()``, as each worker
    would have its own copy.
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
    """The most bytes that this process keeps: its share among the workers of a DataLoader, and torchrun's ranks."""
    worker = get_worker_info()
    processes = (worker.num_workers if worker else 1) * cores.ranks()
    return memory() // SHARE // max(processes, 1)


@cache
def memory() -> int:
    """The bytes of memory of this machine, or of this container if those are fewer."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = cores.of_groups("memory", "memory.limit_in_bytes", "memory.max")
    return min([machine, *(int(text) for text in limits if text.strip().isdigit())])
