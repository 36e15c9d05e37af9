"""The budget: how much of it is taken, which segment has room, and which segments are taken back to make room.

All of it happens in one transaction of the table, so that the budget holds for all processes together. A segment is
charged with its content and its rows. Bytes that are claimed and not yet written count as well, until their writer
reports them written or, if it was killed, the next writer of the segment overwrites them. Which shelf takes room back
from which is in docs/cache.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from accel.cache.entry import INDEX, KINDS, unpacked
from accel.cache.worth import DOUBLE, assumed

OWN = -1
_OF_INDEXES = 32  # one byte of the budget in so many is reserved for indexes
_OF_LEFT = 64  # one free byte in so many is claimed ahead, so that some are left for other processes
_CANDIDATES = 32  # segments looked at each time, to be filled further or taken back
_LEARNING = 4  # a shelf's worth in the table moves by 1 / _LEARNING of its difference from a new measurement

MADE = (
    "CREATE TABLE segments (id INTEGER PRIMARY KEY AUTOINCREMENT, shelf INTEGER, size INTEGER, charge INTEGER,"
    " claimed INTEGER, sum INTEGER)",
    "CREATE TABLE shelves (id INTEGER PRIMARY KEY, worth INTEGER, taken INTEGER, sum INTEGER)",
)
"""The tables. ``sum`` is the row's checksum. ``shelves.taken``: the shelf's worth when it was taken back from; 0 if it
was not."""

_SUM = "id * 3 + shelf * 5 + size * 7 + charge * 11 + claimed * 13 + 17"
_SUM_OF_SHELF = "id * 3 + worth * 5 + taken * 7 + 17"


class ClaimRequest(NamedTuple):
    """A request for bytes to write to: ``size`` of a segment, ``charge`` of the budget.

    ``shelf``; ``worth``: the picoseconds that a byte of it saves, None if this process has not measured it.
    ``most``: the most bytes to claim ahead for later entries. ``limit``: the size beyond which a segment is not filled.
    ``own``: the segments that the caller is filling already, by shelf. ``lock(segment, whether it is new)`` returns a
    descriptor that holds the segment's lock, None if another process has it.
    """

    shelf: int
    worth: int | None
    size: int
    charge: int
    most: int
    budget: int
    limit: int
    own: dict[int, int]
    lock: Callable[[int, bool], int | None]


class Claim(NamedTuple):
    """Claimed bytes: a segment and the offset in it. ``file``: a descriptor that holds its lock, if newly taken.

    ``charge``: the bytes of the budget that were claimed.
    ``taken``: the segments that were taken back for it, with the descriptors that hold their locks, or ``OWN`` where
    the writer itself has the lock.
    """

    segment: int
    offset: int
    file: int | None = None
    taken: Sequence[tuple[int, int]] = ()
    charge: int = 0


class Shelves:
    """The worth and the charge of each shelf according to the table; damaged rows are ignored.

    ``measured``: this process's own measurement of ``shelf``, which comes before the table's; None if there is none.
    """

    def __init__(self, connection: Any, shelf: int, measured: int | None) -> None:
        self._measured = {} if measured is None else {shelf: measured}
        query = f"SELECT id, worth, taken FROM shelves WHERE sum IS {_SUM_OF_SHELF}"
        rows = connection.execute(query).fetchall()
        self._known: dict[int, tuple[int, int]] = {each: (worth, taken) for each, worth, taken in rows}
        query = "SELECT shelf, sum(charge + claimed) FROM segments GROUP BY shelf"
        self.charges: dict[int, int] = dict(connection.execute(query).fetchall())
        self._closed = max((taken for _, taken in self._known.values()), default=0)

    def worth(self, shelf: int) -> int:
        """Picoseconds that a byte of the shelf saves."""
        known, _ = self._known.get(shelf, (assumed(shelf), 0))
        return self._measured.get(shelf, known)

    def grows(self, shelf: int) -> bool:
        """Whether the shelf may grow in this run; that of indexes, which come first, always may."""
        _, taken = self._known.get(shelf, (0, 0))
        return shelf == INDEX or (self.worth(shelf) > self._closed and not taken)

    def yielding(self, shelf: int) -> list[int]:
        """The shelves that this one may take back from, the least worth first; never that of indexes."""
        worth = self.worth(shelf)
        found = [each for each in self.charges if each not in (shelf, INDEX) and DOUBLE * self.worth(each) <= worth]
        return sorted(found, key=self.worth)

    def reserve(self, shelf: int, size: int) -> int:
        """The bytes of a budget of ``size`` that a shelf must leave to indexes, so that these seldom take any back."""
        return 0 if shelf == INDEX else max(size // _OF_INDEXES - self.charges.get(INDEX, 0), 0)

    def learn(self, connection: Any) -> None:
        """Update the table with the measurement."""
        for shelf, measured in self._measured.items():
            known, taken = self._known.get(shelf, (measured, 0))
            self._store(connection, shelf, known + (measured - known) // _LEARNING, taken)

    def take(self, connection: Any, shelf: int) -> None:
        """Record in the table that the shelf is taken back from."""
        worth, taken = self.worth(shelf), self._known.get(shelf, (0, 0))[1]
        self._store(connection, shelf, worth, max(taken, worth, 1))

    def _store(self, connection: Any, shelf: int, worth: int, taken: int) -> None:
        if self._known.get(shelf) != (worth, taken):
            self._known[shelf] = worth, taken
            connection.execute("INSERT OR REPLACE INTO shelves VALUES (?, ?, ?, 0)", (shelf, worth, taken))
            connection.execute(f"UPDATE shelves SET sum = {_SUM_OF_SHELF} WHERE id = ?", (shelf,))


def used(connection: Any) -> int:
    """The bytes of the budget that are taken."""
    return int(connection.execute("SELECT coalesce(sum(charge + claimed), 0) FROM segments").fetchone()[0])


def left(connection: Any, shelf: int, worth: int | None, size: int) -> int:
    """The bytes of a budget of ``size`` that are left for a shelf; ``worth``: as measured here, None if it was not."""
    shelves = Shelves(connection, shelf, worth)
    if not shelves.grows(shelf):
        return 0
    others = sum(shelves.charges[each] for each in shelves.yielding(shelf))
    return size - used(connection) + others - shelves.reserve(shelf, size)


def reopen(connection: Any) -> None:
    """Let all shelves grow again, and release what killed processes had claimed; no other process may have it open."""
    connection.execute("UPDATE segments SET sum = sum - 13 * claimed, claimed = 0 WHERE claimed > 0")
    connection.execute("UPDATE shelves SET sum = sum - 7 * taken, taken = 0 WHERE taken > 0")


def written(connection: Any, claim: Claim, size: int, charge: int) -> bool:
    """Record how much of a claim was written; False if the segment was taken back meanwhile."""
    update = (
        "UPDATE segments SET sum = sum + 7 * ? + 11 * ? - 13 * claimed, size = size + ?, charge = charge + ?,"
        " claimed = 0 WHERE id = ? AND size = ?"
    )
    values = size, charge, size, charge, claim.segment, claim.offset
    return bool(connection.execute(update, values).rowcount == 1)


# -- damage ---------------------------------------------------------------------------------------------------


def damaged(connection: Any) -> list[int]:
    """The segments whose row does not match its checksum."""
    return [segment for (segment,) in connection.execute(f"SELECT id FROM segments WHERE sum IS NOT {_SUM}")]


def faults(connection: Any) -> list[str]:
    """Descriptions of the rows that do not match their checksums."""
    found = [f"what it says of segment {segment} is damaged" for segment in damaged(connection)]
    shelves = connection.execute(f"SELECT id FROM shelves WHERE sum IS NOT {_SUM_OF_SHELF}")
    return found + [f"what it says of shelf {shelf} is damaged" for (shelf,) in shelves]


def contents(connection: Any) -> list[tuple[int, int, int]]:
    """For each kind: the kind, the number of its segments, and their bytes; damaged rows are left out."""
    query = f"SELECT shelf % {KINDS}, count(*), sum(size) FROM segments WHERE sum IS {_SUM} GROUP BY 1"
    return connection.execute(query).fetchall()  # type: ignore[no-any-return]


def mend(connection: Any) -> int:
    """Rebuild the damaged rows of segments from their entries, or delete those without; return how many they were."""
    update = (
        f"UPDATE segments SET shelf = CASE shelf % {KINDS} WHEN ? THEN shelf ELSE ? END,"
        " size = ?, charge = ?, claimed = 0 WHERE id = ?"
    )
    segments = damaged(connection)
    for segment in segments:
        rows = connection.execute("SELECT id, row FROM entries WHERE segment = ?", (segment,)).fetchall()
        found = [entry for number, row in rows if (entry := unpacked(row)) and entry.kind == number % KINDS]
        if not found:
            connection.execute("DELETE FROM segments WHERE id = ?", (segment,))
            continue
        kind, size = found[0].kind, max(entry.offset + entry.size for entry in found)
        charge = size + sum(entry.charge - entry.size for entry in found)
        connection.execute(update, (kind, kind, size, charge, segment))
        _seal(connection, segment)
    return len(segments)


def _seal(connection: Any, segment: int) -> None:
    connection.execute(f"UPDATE segments SET sum = {_SUM} WHERE id = ?", (segment,))


# -- claims ---------------------------------------------------------------------------------------------------


def claim(connection: Any, request: ClaimRequest, locks: list[tuple[int, int]]) -> Claim | None:
    """Claim bytes; None if there are not enough, and then the caller must roll the transaction back.

    ``locks``: gets the segments whose locks were taken, and the descriptors that hold them.
    """
    shelves = Shelves(connection, request.shelf, request.worth)
    shelves.learn(connection)
    left = request.budget - sum(shelves.charges.values()) - shelves.reserve(request.shelf, request.budget)
    charge = max(request.charge, min(request.most, left // _OF_LEFT))
    over = charge - left
    if not shelves.grows(request.shelf):
        return None
    if over > 0 and not _take_back(connection, shelves, request, over, locks):
        return None
    taken = tuple(locks)
    place = _place(connection, request)
    if place.file is not None:
        locks.append((place.segment, place.file))
    update = "UPDATE segments SET sum = sum + 13 * (? - claimed), claimed = ? WHERE id = ?"
    connection.execute(update, (charge, charge, place.segment))
    return place._replace(taken=taken, charge=charge)


def _take_back(
    connection: Any, shelves: Shelves, request: ClaimRequest, over: int, locks: list[tuple[int, int]]
) -> bool:
    """Take segments back until ``over`` bytes are free, those of the least worth and the oldest first."""
    query = "SELECT id, charge + claimed FROM segments WHERE shelf = ? ORDER BY id LIMIT ?"
    for shelf in shelves.yielding(request.shelf):
        for segment, freed in connection.execute(query, (shelf, _CANDIDATES)).fetchall():
            file = OWN if request.own.get(shelf) == segment else request.lock(segment, False)
            if file is not None:
                locks.append((segment, file))
                shelves.take(connection, shelf)
                connection.execute("DELETE FROM entries WHERE segment = ?", (segment,))
                connection.execute("DELETE FROM segments WHERE id = ?", (segment,))
                over -= freed
                if over <= 0:
                    return True
    return False


def _place(connection: Any, request: ClaimRequest) -> Claim:
    """Choose the segment to write to: the caller's own, else one that nobody is filling, else a new one."""
    own = request.own.get(request.shelf)
    if own is not None:
        query = "SELECT size FROM segments WHERE id = ? AND shelf = ?"
        found = connection.execute(query, (own, request.shelf)).fetchone()
        if found and (found[0] == 0 or found[0] + request.size <= request.limit):
            return Claim(own, found[0])
    query = "SELECT id, size FROM segments WHERE shelf = ? AND size <= ? ORDER BY id DESC LIMIT ?"
    left = request.limit - request.size
    for segment, offset in connection.execute(query, (request.shelf, left, _CANDIDATES)).fetchall():
        if segment != own and (file := request.lock(segment, False)) is not None:
            return Claim(segment, offset, file)
    insert = "INSERT INTO segments (shelf, size, charge, claimed) VALUES (?, 0, 0, 0)"
    new = connection.execute(insert, (request.shelf,)).lastrowid
    _seal(connection, new)
    file = request.lock(new, True)
    if file is None:
        raise OSError(f"the new segment {new} is somebody's already")
    return Claim(new, 0, file)
