"""The numbers of a table's rows, in this process's memory: of a place that has none, the table need not be asked.

Eight bytes for each row. When others have changed the table its numbers are read again, for which a small part of the
time is taken: until then a file that another process has put in may not be found, which costs time and nothing else.
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

_PART = 50  # one part in so many of the time


class Numbers:
    """What this process knows of the numbers that there are; any thread may ask."""

    def __init__(self, table: Table, faults: Faults) -> None:
        self._table, self._faults = table, faults
        self._there = array("q")
        self._own = set[int]()  # put in by this process since
        self._version: tuple[int, int] | None = None
        self._next = 0.0

    def renew(self, version: tuple[int, int] | None) -> None:
        """Read them again, if the table is of another version than when they were read, and it is time for it."""
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
        """Note some that this process puts in."""
        self._own.update(numbers)

    def among(self, places: Sequence[int]) -> list[int]:
        """Those of these places that have any."""
        there = np.frombuffer(self._there, np.int64)
        wanted, apart = np.array(places, np.int64), self._own.isdisjoint
        begins, ends = np.searchsorted(there, wanted), np.searchsorted(there, wanted + KINDS)
        has = (begins < ends).tolist()
        return [
            place
            for place, known in zip(places, has, strict=True)
            if known or not apart(range(place, place + KINDS))  # of all that were put in, which may be millions
        ]

    def at(self, place: int) -> list[int]:
        """Those of a place."""
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
