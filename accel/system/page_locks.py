"""Memory that devices read directly: its pages are locked once, and it is used again and again.

A device goes on reading the pages that it locked, even if the system has put others in their place since. So the owner
of the memory says when its pages go (``Block.end``); from then on it is like any other memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable

from accel.system import fork

Unlock = Callable[[], object]


class Block:
    """Memory at an address, in bytes. In a forked child it counts as not locked."""

    def __init__(self, address: int, size: int) -> None:
        self.address, self.size = address, size
        self._lock = fork.Lock()
        self._unlocks: dict[Hashable, Unlock | None] = {}
        self._ended = False
        self._process = os.getpid()

    def locked(self, by: Hashable, lock: Callable[[int, int], Unlock | None]) -> bool:
        """Lock its pages for a kind of device, which is tried once; return whether they are locked.

        Args:
            by: the kind of device. lock: locks (address, size) and returns a function that undoes it; None: it cannot.
        """
        if self._process != os.getpid():
            return False
        unlock = self._unlocks.get(by)
        if unlock is not None:  # checked without the lock, which is faster
            return not self._ended
        with self._lock:
            if self._ended:
                return False
            if by not in self._unlocks:
                self._unlocks[by] = lock(self.address, self.size)
            return self._unlocks[by] is not None

    def end(self) -> None:
        """Unlock its pages, which are about to go, for all devices."""
        if self._process == os.getpid():
            with self._lock:
                self._ended = True
                while self._unlocks:
                    _, unlock = self._unlocks.popitem()
                    if unlock is not None:
                        unlock()
