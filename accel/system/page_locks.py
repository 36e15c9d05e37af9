"""Memory that devices read by themselves: its pages are locked once, and it is used again and again.

A device that has pages locked reads these, also where the system has put others in their place since. So whoever owns
the memory says when its pages go, and from then on it is as any other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable

from accel.system import fork

Unlock = Callable[[], object]


class Block:
    """Memory from an address on. A forked child's devices have nothing of it locked."""

    def __init__(self, address: int, size: int) -> None:
        self.address, self.size = address, size
        self._lock = fork.Lock()
        self._unlocks: dict[Hashable, Unlock | None] = {}
        self._ended = False
        self._process = os.getpid()

    def locked(self, by: Hashable, lock: Callable[[int, int], Unlock | None]) -> bool:
        """Whether its pages are locked for a kind of device, which is tried once.

        Args:
            lock: locks so many bytes from an address on, and returns what undoes that; None: they cannot be locked.
        """
        if self._process != os.getpid():
            return False
        unlock = self._unlocks.get(by)
        if unlock is not None:  # without the lock, which takes longer
            return not self._ended
        with self._lock:
            if self._ended:
                return False
            if by not in self._unlocks:
                self._unlocks[by] = lock(self.address, self.size)
            return self._unlocks[by] is not None

    def end(self) -> None:
        """Its pages go; no device reads them any more."""
        if self._process == os.getpid():
            with self._lock:
                self._ended = True
                while self._unlocks:
                    _, unlock = self._unlocks.popitem()
                    if unlock is not None:
                        unlock()
