"""Entries on their way into a cache: the content is written at once, the rows are added to the table many together.

Content goes to a piece of a segment that was claimed. Until its rows are added only the process that wrote it finds it,
and if that is killed it is lost.
"""

from __future__ import annotations

import os
from collections.abc import Container, Sequence
from time import monotonic
from typing import Any

from accel.cache.budget import OWN, Claim, ClaimRequest
from accel.cache.budget import left as left_for
from accel.cache.entry import KINDS, Entry, charges_of, packed_at, rows_of, sides
from accel.cache.faults import Faults
from accel.cache.segments import Segments, release
from accel.cache.table import Row, Table
from accel.cache.worth import Worth
from accel.system import fork

_ENTRIES, _SECONDS = 256, 1.0  # the most rows that wait to be added, and the longest time
_AT_ONCE = 64 << 20  # the most bytes to claim at once
_SMALLEST_SEGMENT, _LARGEST_SEGMENT, _SEGMENTS = 256 << 10, 256 << 20, 64
_FRESH = 1.0  # seconds for which the remaining budget is not asked for again


class _Piece:
    """A claimed piece of a segment, and the rows of the entries written there."""

    def __init__(self, claim: Claim, file: int, limit: int) -> None:
        self.claim, self.file, self.limit = claim, file, limit
        self.at, self.left = claim.offset, claim.charge
        self.rows: dict[int, Any] = {}

    def takes(self, size: int, charge: int) -> bool:
        return charge <= self.left and (self.at == 0 or self.at + size <= self.limit)

    def fitting(self, sizes: Sequence[int], charges: Sequence[int]) -> int:
        """How many of the next entries fit, at least the first, and at most as many as may wait together."""
        count, at, left = 0, self.at, self.left
        for size, charge in zip(sizes[: max(_ENTRIES - len(self.rows), 1)], charges, strict=False):
            at, left = at + size, left - charge
            if count and (at > self.limit or left < 0):
                break
            count += 1
        return count

    def add(self, entries: Sequence[Entry], sizes: Sequence[int], charges: Sequence[int]) -> None:
        """Add the rows of entries that were written."""
        *offsets, end = sides(sizes, self.at)
        self.rows.update(zip(rows_of(entries), packed_at(entries, self.claim.segment, offsets), strict=True))
        self.at, self.left = end, self.left - sum(charges)


class Filling:
    """Rows that this process has not added to the table yet, and the segments that it is filling."""

    def __init__(self, budget: int, table: Table, segments: Segments, faults: Faults, worth: Worth) -> None:
        self.budget, self._worth = budget, worth
        self.written = 0  # how often rows were added to the table
        self._table, self._segments, self._faults = table, segments, faults
        self._limit = min(max(budget // _SEGMENTS, _SMALLEST_SEGMENT), _LARGEST_SEGMENT)
        self.begin()

    def begin(self) -> None:
        """Begin with no rows and no segments."""
        self._lock = fork.Lock()
        self._pieces: dict[int, _Piece] = {}  # by shelf
        self._dropped: list[Row] = []
        self._since: float | None = None  # when the first row that waits came
        self._own: dict[int, tuple[int, int]] = {}  # by shelf: the segment that this process is filling, its descriptor
        self._left: dict[int, tuple[float, int]] = {}  # by shelf: when and what remaining budget was seen

    def writes(self) -> bool:
        """Whether this process still writes to the cache."""
        return not (self._faults.mute or self._faults.broken)

    def put(
        self, entries: Sequence[Entry], begins: Sequence[int], content: memoryview, shelf: int, there: Sequence[bool]
    ) -> list[bool]:
        """Write the contents of entries, which begin at ``begins``, except of those that are ``there`` already.

        Return which of them the cache then has: also those that were written, up to the first that had no room.
        """
        kept, first = [*there], 0
        sizes = [entry.size for entry in entries]
        charges = charges_of(entries, sizes)
        with self._lock:
            while first < len(entries):
                if kept[first]:
                    first += 1
                    continue
                piece = self._pieces.get(shelf)
                if piece is None or not piece.takes(sizes[first], charges[first]):
                    piece = self._claimed(shelf, sizes[first], charges[first])
                if piece is None:
                    break
                end = _together(first, kept, begins, sizes)
                end = first + piece.fitting(sizes[first:end], charges[first:end])
                try:
                    self._segments.write(
                        piece.file, piece.at, content[begins[first] : begins[end - 1] + sizes[end - 1]]
                    )
                except OSError as error:
                    self._publish_all()
                    self._faults.stop(str(error))
                    break
                piece.add(entries[first:end], sizes[first:end], charges[first:end])
                kept[first:end] = [True] * (end - first)
                first = end
                self._since = self._since or monotonic()
                if len(piece.rows) >= _ENTRIES:
                    self._publish_all()
        return kept

    def _claimed(self, shelf: int, size: int, charge: int) -> _Piece | None:
        """Claim a piece of a segment for an entry of this size and later ones; None if there is no room."""
        if not self._publish(shelf):
            return None
        self._faults.mend(self._table)
        own = {each: segment for each, (segment, _) in self._own.items()}
        given = size, charge, _AT_ONCE, self.budget, self._limit, own, self._segments.lock
        request = ClaimRequest(shelf, self._worth.of(shelf), *given)
        claim = self._faults.change(self._table.claim, request)
        self._left.pop(shelf, None)
        if claim is None:
            return None
        file = self._take(shelf, claim)
        piece = self._pieces[shelf] = _Piece(claim, file, self._limit)
        return piece

    def _take(self, shelf: int, claim: Claim) -> int:
        """Remove the segments that were taken back for a claim; return the descriptor to write to."""
        for other, (segment, _) in tuple(self._own.items()):
            if (segment, OWN) in claim.taken:
                self._pieces.pop(other, None)
                self._segments.remove([self._own.pop(other)])
        self._segments.remove([each for each in claim.taken if each[1] != OWN])
        if claim.file is not None:
            self.let_go(shelf)
            self._own[shelf] = claim.segment, claim.file
        return self._own[shelf][1]

    def waiting(self, places: Container[int]) -> dict[int, list[Row]]:
        """The rows at places that are not in the table yet, by place."""
        found: dict[int, list[Row]] = {}
        for piece in tuple(self._pieces.values()):
            for row in [*piece.rows.items()]:
                if (place := row[0] & -KINDS) in places:
                    found.setdefault(place, []).append(row)
        return found

    def drop(self, row: Row) -> None:
        """Delete a row, here or, with the next ``flush``, in the table."""
        number, content = row
        with self._lock:
            for piece in self._pieces.values():
                if piece.rows.get(number) == content:
                    del piece.rows[number]
                    return
            self._since = self._since or monotonic()
            self._dropped.append(row)

    def room(self, shelf: int, size: int) -> bool:
        """Whether an entry would probably be kept: a cheap estimate."""
        if not self.writes():
            return False
        piece = self._pieces.get(shelf)
        if piece is not None and piece.left >= 2 * size:
            return True
        when, left = self._left.get(shelf, (0.0, 0))
        if monotonic() > when + _FRESH:
            self._faults.mend(self._table)
            left = self._faults.ask(self._table.read, left_for, shelf, self._worth.of(shelf), self.budget) or 0
            self._left[shelf] = monotonic(), left
        return size < left

    def is_due(self) -> bool:
        return self._since is not None and monotonic() > self._since + _SECONDS

    def flush(self, tries: int = 1) -> bool:
        """Add waiting rows to the table; False if there are none. ``tries``: attempts while another process writes."""
        if self._since is None:
            return False
        with self._lock:
            while not self._publish_all() and tries > 1:
                tries -= 1
        return True

    def _publish_all(self) -> bool:
        """Add all rows to the table; False if some still wait because another process writes."""
        if self._dropped and self.writes():
            self._faults.change(self._table.drop, self._dropped)
        self._dropped = []
        published = [self._publish(shelf) for shelf in sorted(self._pieces)]
        self._since = None if all(published) else monotonic()
        return all(published)

    def _publish(self, shelf: int) -> bool:
        """Add a piece's rows to the table, and give back the rest of the piece; False if another process writes."""
        piece = self._pieces.get(shelf)
        if piece is None:
            return True
        self.written += 1
        charge = piece.claim.charge - piece.left
        published = self._faults.change(self._table.add, piece.rows, piece.claim, piece.at - piece.claim.offset, charge)
        if published is None and self.writes():
            return False
        del self._pieces[shelf]
        self._left.pop(shelf, None)
        if published is not True:
            self.let_go(shelf)  # the segment's next writer overwrites this
        return True

    def let_go(self, shelf: int | None = None, *, in_child: bool = False) -> None:
        """Stop filling the segment of a shelf, or of all; ``in_child``: the parent process keeps the lock."""
        for each in tuple(self._own) if shelf is None else (shelf,):
            if (own := self._own.pop(each, None)) is not None:
                if in_child:
                    os.close(own[1])
                else:
                    release([own])


def _together(first: int, kept: Sequence[bool], begins: Sequence[int], sizes: Sequence[int]) -> int:
    """The end of the run of entries, from ``first`` on, that lie side by side and are not kept yet."""
    end = first + 1
    while end < len(kept) and not kept[end] and begins[end] == begins[end - 1] + sizes[end - 1]:
        end += 1
    return end
