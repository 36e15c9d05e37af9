"""The numbers of a table's rows, in this process's memory, so that the table is not asked for what it lacks.

They take eight bytes a row. When others have changed the table they are read again, but only so often that this takes a
small part of the time. Until then an entry of another process may not be found, which costs time and nothing else.
"""

from __future__ import annotations

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
        self._there = np.empty(0, np.int64)  # ascending
        self._own = set[int]()  # put in by this process since they were read
        self._version: tuple[int, int] | None = None
        self._next = 0.0

    def renew(self, version: tuple[int, int] | None) -> None:
        """Read the numbers again if the table's version has changed and enough time has passed."""
        start = monotonic()
        if version is None or version == self._version or start < self._next:
            return
        found = self._faults.ask(self._table.numbers)
        if found is not None:
            self._there, self._version = found, version
            own = np.array([*self._own], np.int64)  # other threads add to them meanwhile
            there = np.searchsorted(found, own) < np.searchsorted(found, own, "right")
            self._own.difference_update(own[there].tolist())
        now = monotonic()
        self._next = now + _PART * (now - start)

    def add(self, numbers: Iterable[int]) -> None:
        self._own.update(numbers)

    def at(self, places: Sequence[int]) -> dict[int, list[int]]:
        """The numbers of the rows at each of these places that has any."""
        there, looked = self._there, np.array(places, np.int64)
        begins = np.searchsorted(there, looked).tolist()
        ends = np.searchsorted(there, looked + (KINDS - 1), "right").tolist()
        spans = zip(places, begins, ends, strict=True)
        found = {place: there[begin:end].tolist() for place, begin, end in spans if begin < end}
        for place in places if self._own else ():
            if own := self._own.intersection(range(place, place + KINDS)):
                found[place] = sorted(own.union(found.get(place, ())))
        return found
