"""Whose bytes are whose: what of the budget is taken, where there is room, and what is taken back to make some.

All of it happens in one transaction of the table, so that the budget holds for all processes together. A segment is
charged with its content and its rows; what is claimed and not yet written counts as well, until its writer says that
it is written, or the next one to fill the segment overwrites it, because the writer was killed.

What saves twice as much time a byte (``worth``) takes room back, and never the reverse. A shelf that was taken back
from grows no more in this run, nor does any that is worth no more than it was: nothing is written only to be taken back
for the next one. So a run writes less than the budget for each shelf, and then writes no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from accel.cache.entry import INDEX, KINDS, unpacked
from accel.cache.worth import DOUBLE, assumed

OWN = -1
_OF_INDEXES = 32  # one byte in so many is theirs
_OF_LEFT = 64  # one byte in so many of those left is claimed for what is yet to come, so that many processes find some
_CANDIDATES = 32  # segments that might be filled further, or taken back, looked at each time
_LEARNING = 4  # of what another process measured a shelf to be worth, so much of the difference is taken over

MADE = (
    "CREATE TABLE segments (id INTEGER PRIMARY KEY AUTOINCREMENT, shelf INTEGER, size INTEGER, charge INTEGER,"
    " claimed INTEGER, sum INTEGER)",
    "CREATE TABLE shelves (id INTEGER PRIMARY KEY, worth INTEGER, taken INTEGER, sum INTEGER)",
)
"""The tables. ``sum`` tells a row in which a bit was flipped. ``shelves.taken``: what it was worth when it was taken
back from; 0: it was not."""

_SUM = "id * 3 + shelf * 5 + size * 7 + charge * 11 + claimed * 13 + 17"
_SUM_OF_SHELF = "id * 3 + worth * 5 + taken * 7 + 17"


class Wanted(NamedTuple):
    """What somebody has to write: ``size`` bytes of a segment, ``charge`` of the budget.

    ``shelf``, ``worth``: where it belongs, and what a byte there was measured to save (``worth``).
    ``most``: as many are claimed at most for more to come. ``limit``: the bytes after which a segment gets no more.
    ``own``: the segments that the caller fills already, by shelf. ``lock(segment, whether it is new)`` gives a
    descriptor that holds its lock, None where another has that.
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
    """Bytes that may be written: in which segment, from where on; ``file``: the segment's, if it was not the writer's.

    ``charge``: how many bytes of the budget were claimed.
    ``taken``: the segments that were taken back for it, with the descriptors that hold their locks; ``OWN`` for one
    that the writer holds itself.
    """

    segment: int
    offset: int
    file: int | None = None
    taken: Sequence[tuple[int, int]] = ()
    charge: int = 0


class Shelves:
    """What the shelves are worth, and how much they have, as the table says; a row that is damaged says nothing.

    ``measured``: what a process has measured of one of them itself, which it believes.
    """

    def __init__(self, connection: Any, shelf: int, measured: int | None) -> None:
        self._measured = {} if measured is None else {shelf: measured}
        query = f"SELECT id, worth, taken FROM shelves WHERE sum IS {_SUM_OF_SHELF}"
        self._known = {each: (worth, taken) for each, worth, taken in connection.execute(query)}
        query = "SELECT shelf, sum(charge + claimed) FROM segments GROUP BY shelf"
        self.charges: dict[int, int] = dict(connection.execute(query).fetchall())
        self._closed = max((taken for _, taken in self._known.values()), default=0)

    def worth(self, shelf: int) -> int:
        """Picoseconds that a byte saves."""
        known = self._measured.get(shelf)
        if known is None:
            known = self._known[shelf][0] if shelf in self._known else assumed(shelf)
        return known

    def grows(self, shelf: int) -> bool:
        """Whether there may be more of it in this run; of indexes always, which come first."""
        taken = self._known[shelf][1] if shelf in self._known else 0
        return shelf == INDEX or (self.worth(shelf) > self._closed and not taken)

    def yielding(self, shelf: int) -> list[int]:
        """The shelves that are taken back from for it, that of the least worth first; never that of indexes."""
        worth = self.worth(shelf)
        found = [each for each in self.charges if each not in (shelf, INDEX) and DOUBLE * self.worth(each) <= worth]
        return sorted(found, key=self.worth)

    def reserve(self, shelf: int, size: int) -> int:
        """The bytes of a budget that others leave to indexes, for which hardly anything is then taken back."""
        return 0 if shelf == INDEX else max(size // _OF_INDEXES - self.charges.get(INDEX, 0), 0)

    def learn(self, connection: Any) -> None:
        """Have the table say what was measured."""
        for shelf, measured in self._measured.items():
            known, taken = self._known.get(shelf, (measured, 0))
            self._tell(connection, shelf, known + (measured - known) // _LEARNING, taken)

    def take(self, connection: Any, shelf: int) -> None:
        """Note that it is taken back from."""
        worth, taken = self.worth(shelf), self._known.get(shelf, (0, 0))[1]
        self._tell(connection, shelf, worth, max(taken, worth, 1))

    def _tell(self, connection: Any, shelf: int, worth: int, taken: int) -> None:
        if self._known.get(shelf) != (worth, taken):
            self._known[shelf] = worth, taken
            connection.execute("INSERT OR REPLACE INTO shelves VALUES (?, ?, ?, 0)", (shelf, worth, taken))
            connection.execute(f"UPDATE shelves SET sum = {_SUM_OF_SHELF} WHERE id = ?", (shelf,))


def used(connection: Any) -> int:
    """The bytes of the budget that are taken."""
    return int(connection.execute("SELECT coalesce(sum(charge + claimed), 0) FROM segments").fetchone()[0])


def left(connection: Any, shelf: int, worth: int | None, size: int) -> int:
    """The bytes of a budget of this size that entries of a shelf may have, which was measured to be worth that."""
    shelves = Shelves(connection, shelf, worth)
    if not shelves.grows(shelf):
        return 0
    others = sum(shelves.charges[each] for each in shelves.yielding(shelf))
    return size - used(connection) + others - shelves.reserve(shelf, size)


def reopen(connection: Any) -> None:
    """Let all shelves grow again, and give back what those had claimed who were killed; nobody else has it open."""
    connection.execute("UPDATE segments SET sum = sum - 13 * claimed, claimed = 0 WHERE claimed > 0")
    connection.execute("UPDATE shelves SET sum = sum - 7 * taken, taken = 0 WHERE taken > 0")


def written(connection: Any, claim: Claim, size: int, charge: int) -> bool:
    """Note how much was written of what was claimed; False: the segment was taken back meanwhile."""
    update = (
        "UPDATE segments SET sum = sum + 7 * ? + 11 * ? - 13 * claimed, size = size + ?, charge = charge + ?,"
        " claimed = 0 WHERE id = ? AND size = ?"
    )
    given = size, charge, size, charge, claim.segment, claim.offset
    return bool(connection.execute(update, given).rowcount == 1)


# -- damage ---------------------------------------------------------------------------------------------------


def damaged(connection: Any) -> list[int]:
    """The segments whose row is not what was written."""
    return [segment for (segment,) in connection.execute(f"SELECT id FROM segments WHERE sum IS NOT {_SUM}")]


def faults(connection: Any) -> list[str]:
    """What is not what was written, each in a few words."""
    found = [f"what it says of segment {segment} is damaged" for segment in damaged(connection)]
    shelves = connection.execute(f"SELECT id FROM shelves WHERE sum IS NOT {_SUM_OF_SHELF}")
    return found + [f"what it says of shelf {shelf} is damaged" for (shelf,) in shelves]


def contents(connection: Any) -> list[tuple[int, int, int]]:
    """Each kind: how many segments it has, and their bytes, but for those whose row is damaged."""
    query = f"SELECT shelf % {KINDS}, count(*), sum(size) FROM segments WHERE sum IS {_SUM} GROUP BY 1"
    return connection.execute(query).fetchall()  # type: ignore[no-any-return]


def mend(connection: Any) -> int:
    """Have the rows of segments say again what their entries say, where they are damaged; how many were."""
    found = damaged(connection)
    for segment in found:
        _mend(connection, segment)
    return len(found)


def _mend(connection: Any, segment: int) -> None:
    """Without any entry, it is a segment no more."""
    rows = connection.execute("SELECT id, row FROM entries WHERE segment = ?", (segment,)).fetchall()
    found = [entry for number, row in rows if (entry := unpacked(row)) and entry.kind == number % KINDS]
    if not found:
        connection.execute("DELETE FROM segments WHERE id = ?", (segment,))
        return
    kind, size = found[0].kind, max(entry.offset + entry.size for entry in found)
    charge = size + sum(entry.charge - entry.size for entry in found)
    update = (
        f"UPDATE segments SET shelf = CASE shelf % {KINDS} WHEN ? THEN shelf ELSE ? END,"
        " size = ?, charge = ?, claimed = 0 WHERE id = ?"
    )
    connection.execute(update, (kind, kind, size, charge, segment))
    _seal(connection, segment)


def _seal(connection: Any, segment: int) -> None:
    connection.execute(f"UPDATE segments SET sum = {_SUM} WHERE id = ?", (segment,))


# -- claims ---------------------------------------------------------------------------------------------------


def claim(connection: Any, wanted: Wanted, held: list[tuple[int, int]]) -> Claim | None:
    """Claim bytes; None: there are not so many, and what was done is to be undone.

    ``held``: segments and descriptors of the locks that were taken.
    """
    shelves = Shelves(connection, wanted.shelf, wanted.worth)
    shelves.learn(connection)
    left = wanted.budget - sum(shelves.charges.values()) - shelves.reserve(wanted.shelf, wanted.budget)
    charge = max(wanted.charge, min(wanted.most, left // _OF_LEFT))
    over = charge - left
    if not shelves.grows(wanted.shelf):
        return None
    if over > 0 and not _take_back(connection, shelves, wanted, over, held):
        return None
    taken = tuple(held)
    place = _place(connection, wanted)
    if place.file is not None:
        held.append((place.segment, place.file))
    update = "UPDATE segments SET sum = sum + 13 * (? - claimed), claimed = ? WHERE id = ?"
    connection.execute(update, (charge, charge, place.segment))
    return place._replace(taken=taken, charge=charge)


def _take_back(connection: Any, shelves: Shelves, wanted: Wanted, over: int, held: list[tuple[int, int]]) -> bool:
    """Take segments back until ``over`` bytes are free, those of the least worth and the oldest first."""
    query = "SELECT id, charge + claimed FROM segments WHERE shelf = ? ORDER BY id LIMIT ?"
    for shelf in shelves.yielding(wanted.shelf):
        for segment, freed in connection.execute(query, (shelf, _CANDIDATES)).fetchall():
            file = OWN if wanted.own.get(shelf) == segment else wanted.lock(segment, False)
            if file is not None:
                held.append((segment, file))
                shelves.take(connection, shelf)
                connection.execute("DELETE FROM entries WHERE segment = ?", (segment,))
                connection.execute("DELETE FROM segments WHERE id = ?", (segment,))
                over -= freed
                if over <= 0:
                    return True
    return False


def _place(connection: Any, wanted: Wanted) -> Claim:
    """Where the bytes are to be written: in the caller's segment, in one that nobody fills any more, or a new one."""
    own = wanted.own.get(wanted.shelf)
    if own is not None:
        query = "SELECT size FROM segments WHERE id = ? AND shelf = ?"
        found = connection.execute(query, (own, wanted.shelf)).fetchone()
        if found and (found[0] == 0 or found[0] + wanted.size <= wanted.limit):
            return Claim(own, found[0])
    query = "SELECT id, size FROM segments WHERE shelf = ? AND size <= ? ORDER BY id DESC LIMIT ?"
    left = wanted.limit - wanted.size
    for segment, offset in connection.execute(query, (wanted.shelf, left, _CANDIDATES)).fetchall():
        if segment != own and (file := wanted.lock(segment, False)) is not None:
            return Claim(segment, offset, file)
    insert = "INSERT INTO segments (shelf, size, charge, claimed) VALUES (?, 0, 0, 0)"
    new = connection.execute(insert, (wanted.shelf,)).lastrowid
    _seal(connection, new)
    file = wanted.lock(new, True)
    if file is None:
        raise OSError(f"the new segment {new} is somebody's already")
    return Claim(new, 0, file)
