"""Entries on their way into a cache: kept until there are enough to be written together, or a batch is over."""

from __future__ import annotations

import os
from collections.abc import Sequence
from time import monotonic
from typing import Any, NamedTuple

from accel.cache.budget import OWN, Claim, Wanted
from accel.cache.entry import LARGEST, LONGEST, MOST_PARTS, Entry, numbers_of, packed, place_of, unpacked
from accel.cache.faults import Faults
from accel.cache.segments import Segments, release
from accel.cache.table import Row, Table
from accel.codec.jpeg import digest
from accel.system import fork

_AT_ONCE, _AT_ONCE_BYTES = 64, 32 << 20  # entries, and their bytes
_SMALLEST_SEGMENT, _LARGEST_SEGMENT, _SEGMENTS = 256 << 10, 256 << 20, 64
_ROW, _OF_ROW = 64, 2  # bytes of a row in the table besides its own; a table's pages are half full at least
_FRESH = 1.0  # seconds for which what the budget has left is believed


class _Waiting(NamedTuple):
    """An entry whose place is not known yet, and its content."""

    entry: Entry
    content: bytes

    @property
    def charge(self) -> int:
        """What it takes of the budget, at most."""
        return len(self.content) + _OF_ROW * (len(packed(self.entry)) + _ROW)


class Filling:
    """What a process has yet to write, and the segments that it fills."""

    def __init__(self, budget: int, table: Table, segments: Segments, faults: Faults) -> None:
        self.budget = budget
        self.written = 0  # how often
        self._table, self._segments, self._faults = table, segments, faults
        self._limit = min(max(budget // _SEGMENTS, _SMALLEST_SEGMENT), _LARGEST_SEGMENT)
        self._writing = fork.Lock()
        self.begin()

    def begin(self) -> None:
        """Have nothing to write, and no segments."""
        self._adding = fork.Lock()
        self._waiting: list[_Waiting] = []
        self._bytes = 0
        self._dropped: list[Row] = []
        self._own: dict[int, tuple[int, int]] = {}  # by kind: the segment that this process fills, its descriptor
        self._left: dict[int, tuple[float, int]] = {}  # by kind: when it was asked, and what there was

    def put(self, entry: Entry, parts: Sequence[Any]) -> bool:
        """Keep a copy of the parts as this entry's; False where there is no room."""
        size = sum(memoryview(part).nbytes for part in parts)
        longest = max(len(entry.key), len(entry.header), len(entry.meta))
        if longest > LONGEST or len(parts) > MOST_PARTS or size > LARGEST or not self.room(entry.kind, size):
            return False
        numbers = numbers_of(parts, [digest(part) for part in parts])
        waiting = _Waiting(entry._replace(numbers=numbers), b"".join(parts))
        with self._adding:
            self._waiting.append(waiting)
            self._bytes += size
            enough = len(self._waiting) >= _AT_ONCE or self._bytes >= _AT_ONCE_BYTES
        if enough:
            self.flush()
        return True

    def drop(self, row: Row) -> None:
        """Have a row forgotten."""
        with self._adding:
            self._dropped.append(row)

    def room(self, kind: int, size: int) -> bool:
        """Whether an entry would be kept, as far as is known without much ado."""
        if self._faults.mute or self._faults.broken:
            return False
        when, left = self._left.get(kind, (0.0, 0))
        if monotonic() > when + _FRESH:
            left = self._faults.ask(self._table.left, kind, self.budget) or 0
            self._left[kind] = monotonic(), left
        return self._bytes + size < left

    def flush(self) -> bool:
        """Write what waits, and say where it is; False: there is nothing."""
        if not (self._waiting or self._dropped):
            return False
        with self._writing:
            self.written += 1
            with self._adding:
                waiting, self._waiting, self._bytes = self._waiting, [], 0
                dropped, self._dropped = self._dropped, []
            if self._faults.mute or self._faults.broken:
                return False
            if dropped:
                self._faults.change(self._table.drop, dropped)
            for kind in sorted({each.entry.kind for each in waiting}):
                group = self._new([each for each in waiting if each.entry.kind == kind])
                while group:
                    count = _that_fit(group, self._limit)
                    self._write(kind, group[:count])
                    del group[:count]
        return True

    def _new(self, group: Sequence[_Waiting]) -> list[_Waiting]:
        """Those that the table does not have as they are already."""
        places = [place_of(each.entry.key) for each in group]
        there = self._faults.ask(self._table.rows_of, places)
        if there is None:
            return []
        entries = [[unpacked(row) for _, row in rows] for rows in there]
        return [
            each
            for each, known in zip(group, entries, strict=True)
            if not any(entry is not None and entry.is_as(each.entry) for entry in known)
        ]

    def _write(self, kind: int, group: Sequence[_Waiting]) -> bool:
        """Write entries of a kind side by side, the first ones where there is no room for all; False: none of them."""
        size, charge = sum(len(each.content) for each in group), sum(each.charge for each in group)
        own = {kind: segment for kind, (segment, _) in self._own.items()}
        wanted = Wanted(kind, size, charge, self.budget, self._limit, own, self._segments.lock)
        claim = self._faults.change(self._table.claim, wanted)
        if claim is None:
            self._left.pop(kind, None)
            half = len(group) // 2
            return half > 0 and self._write(kind, group[:half]) and (self._write(kind, group[half:]) or True)
        file = self._take(kind, claim)
        rows, at = list[Row](), claim.offset
        for each in group:
            row = packed(each.entry._replace(segment=claim.segment, offset=at))
            rows.append((place_of(each.entry.key) + kind, row))
            at += len(each.content)
        try:
            self._segments.write(file, claim.offset, [each.content for each in group])
        except OSError as error:
            self._faults.change(self._table.unclaim, claim.segment)
            self._faults.stop(str(error))
            return False
        self._left = {each: (when, left - charge) for each, (when, left) in self._left.items()}
        if self._faults.change(self._table.add, rows, claim, size, charge) is not True:
            self.let_go(kind)  # whoever fills it next overwrites this
            return False
        return True

    def _take(self, kind: int, claim: Claim) -> int:
        """Take what was claimed; the descriptor to write to."""
        for other, (segment, _) in tuple(self._own.items()):
            if (segment, OWN) in claim.taken:
                self._segments.remove([self._own.pop(other)])
        self._segments.remove([each for each in claim.taken if each[1] != OWN])
        if claim.file is not None:
            self.let_go(kind)
            self._own[kind] = claim.segment, claim.file
        return self._own[kind][1]

    def let_go(self, kind: int | None = None, *, in_child: bool = False) -> None:
        """Fill the segment of a kind, or of all, no further; ``in_child``: its lock stays the parent's."""
        for each in tuple(self._own) if kind is None else (kind,):
            if (own := self._own.pop(each, None)) is not None:
                if in_child:
                    os.close(own[1])
                else:
                    release([own])


def _that_fit(group: Sequence[_Waiting], limit: int) -> int:
    """How many of these, from the first on, a segment takes: one at least."""
    size = 0
    for count, each in enumerate(group):
        size += len(each.content)
        if count and size > limit:
            return count
    return len(group)
