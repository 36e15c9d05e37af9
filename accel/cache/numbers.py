"""The numbers of a table's rows, in this process's memory, so that the table is not asked for what it lacks.

They take eight bytes a row. When others have changed the table they are read again, but only so often that this takes a
small part of the time. Until then an entry of another process may not be found, which costs time and nothing else.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from time import monotonic

import numpy as np

from accel.cache.entry import KINDS
from accel.cache.faults import Faults
from accel.cache.table import Table

_PART = 50  # they are not read again for so many times as long as reading them took


class Numbers:
    """The row numbers that this process knows of; any thread may call any method."""

    def __init__(self, table: Table, faults: Faults) -> None:
        self._table, self._faults = table, faults
        self._there = array("q")
        self._own = set[int]()  # put in by this process since they were read
        self._version: tuple[int, int] | None = None
        self._next = 0.0

    def renew(self, version: tuple[int, int] | None) -> None:
        """Read the numbers again if the table's version has changed and enough time has passed."""
        begun = monotonic()
        if version is None or version == self._version or begun < self._next:
            return
        found = self._faults.ask(self._table.numbers)
        if found is not None:
            self._there, self._version = found, version
            self._own.difference_update([number for number in tuple(self._own) if self._has(number)])  # others add
        now = monotonic()
        self._next = now + _PART * (now - begun)

    def add(self, numbers: Iterable[int]) -> None:
        """Add numbers that this process puts in."""
        self._own.update(numbers)

    def among(self, places: Sequence[int]) -> list[int]:
        """The places that have rows."""
        there = np.frombuffer(self._there, np.int64)
        wanted, apart = np.array(places, np.int64), self._own.isdisjoint
        begins, ends = np.searchsorted(there, wanted), np.searchsorted(there, wanted + KINDS)
        has = (begins < ends).tolist()
        return [
            place
            for place, known in zip(places, has, strict=True)
            if known or not apart(range(place, place + KINDS))  # looked up, not walked: there may be millions
        ]

    def at(self, place: int) -> list[int]:
        """The numbers of the rows at a place."""
        there, found = self._there, list[int]()
        at = bisect_left(there, place)
        while at < len(there) and there[at] < place + KINDS:
            found.append(there[at])
            at += 1
        if self._own:
            found += [number for number in range(place, place + KINDS) if number in self._own and number not in found]
        return found

    def _has(self, number: int) -> bool:
        at = bisect_left(self._there, number)
        return at < len(self._there) and self._there[at] == number
