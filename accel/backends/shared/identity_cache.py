"""A cache of values derived from objects, by the objects' identity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class IdentityCache(Generic[K, V]):
    """A function of one object whose results are remembered. The cache keeps objects alive; it is emptied when full."""

    def __init__(self, function: Callable[[K], V], size: int) -> None:
        self._function, self._size = function, size
        self._known: dict[int, tuple[K, V]] = {}

    def __call__(self, key: K) -> V:
        found = self._known.get(id(key))
        if found is None or found[0] is not key:
            if len(self._known) >= self._size:
                self._known.clear()
            found = self._known[id(key)] = key, self._function(key)
        return found[1]

    def clear(self) -> None:
        self._known.clear()
