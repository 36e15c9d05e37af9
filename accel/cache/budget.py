"""Whose bytes are whose: what of the budget is taken, where there is room, and what is taken back to make some.

All of it happens in one transaction of the table, so that the budget holds for all processes together. A segment is
charged with its content and its rows; what is claimed and not yet written counts as well, until its writer says that
it is written, or the next one to fill the segment overwrites it, because the writer was killed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from accel.cache.entry import INDEX, KINDS

OWN = -1
_OF_INDEXES = 32  # one byte in so many is theirs
_OF_LEFT = 64  # one byte in so many of those left is claimed for what is yet to come, so that many processes find some
_CANDIDATES = 32  # segments that might be filled further, or taken back, looked at each time


class Wanted(NamedTuple):
    """What somebody has to write: ``size`` bytes of a segment, ``charge`` of the budget.

    ``most``: as many are claimed at most for more to come. ``limit``: the bytes after which a segment gets no more.
    ``own``: the segments that the caller fills already, by kind. ``lock(segment, whether it is new)`` gives a
    descriptor that holds its lock, None where another has that.
    """

    kind: int
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


def used(connection: Any, above: int = 0) -> int:
    """The bytes of the budget that are taken, by kinds above this one."""
    query = "SELECT coalesce(sum(charge + claimed), 0) FROM segments WHERE kind > ?"
    return int(connection.execute(query, (above,)).fetchone()[0])


def left(connection: Any, kind: int, size: int) -> int:
    """The bytes of a budget of this size that entries of a kind may have."""
    if kind >= _closed(connection):
        return 0
    return size - used(connection) + used(connection, kind) - _reserve(connection, kind, size)


def _reserve(connection: Any, kind: int, size: int) -> int:
    """The bytes of a budget that other kinds leave to indexes, for which hardly anything is then taken back."""
    return max(size // _OF_INDEXES - used(connection) + used(connection, INDEX), 0) if kind > INDEX else 0


def _closed(connection: Any) -> int:
    """The worthiest kind of which something was taken back: it and those below it grow no more, so that nothing is
    written only to be taken back for the next one."""
    found = connection.execute("SELECT value FROM about WHERE name = 'closed'").fetchone()
    return int(found[0]) if found else KINDS


def reopen(connection: Any) -> None:
    """Let all kinds grow again, and give back what those had claimed who were killed; nobody else has it open."""
    connection.execute("UPDATE segments SET claimed = 0 WHERE claimed > 0")
    connection.execute("DELETE FROM about WHERE name = 'closed'")


def claim(connection: Any, wanted: Wanted, held: list[tuple[int, int]]) -> Claim | None:
    """Claim bytes; None: there are not so many, and what was done is to be undone.

    ``held``: segments and descriptors of the locks that were taken.
    """
    closed = _closed(connection)
    left = wanted.budget - used(connection) - _reserve(connection, wanted.kind, wanted.budget)
    charge = max(wanted.charge, min(wanted.most, left // _OF_LEFT))
    over = charge - left
    if wanted.kind >= closed:
        return None
    if over > 0 and not _take_back(connection, wanted, over, held):
        return None
    taken = tuple(held)
    place = _place(connection, wanted)
    if place.file is not None:
        held.append((place.segment, place.file))
    connection.execute("UPDATE segments SET claimed = ? WHERE id = ?", (charge, place.segment))
    return place._replace(taken=taken, charge=charge)


def _take_back(connection: Any, wanted: Wanted, over: int, held: list[tuple[int, int]]) -> bool:
    """Take segments back until ``over`` bytes are free, those of the least worthy kind and the oldest first."""
    query = "SELECT id, kind, charge + claimed FROM segments WHERE kind > ? ORDER BY kind DESC, id LIMIT ?"
    for segment, kind, freed in connection.execute(query, (wanted.kind, _CANDIDATES)).fetchall():
        file = OWN if wanted.own.get(kind) == segment else wanted.lock(segment, False)
        if file is not None:
            held.append((segment, file))
            connection.execute("INSERT OR REPLACE INTO about VALUES ('closed', min(?, ?))", (kind, _closed(connection)))
            connection.execute("DELETE FROM entries WHERE segment = ?", (segment,))
            connection.execute("DELETE FROM segments WHERE id = ?", (segment,))
            over -= freed
            if over <= 0:
                return True
    return False


def _place(connection: Any, wanted: Wanted) -> Claim:
    """Where the bytes are to be written: in the caller's segment, in one that nobody fills any more, or a new one."""
    own = wanted.own.get(wanted.kind)
    if own is not None:
        query = "SELECT size FROM segments WHERE id = ? AND kind = ?"
        found = connection.execute(query, (own, wanted.kind)).fetchone()
        if found and (found[0] == 0 or found[0] + wanted.size <= wanted.limit):
            return Claim(own, found[0])
    query = "SELECT id, size FROM segments WHERE kind = ? AND size <= ? ORDER BY id DESC LIMIT ?"
    left = wanted.limit - wanted.size
    for segment, offset in connection.execute(query, (wanted.kind, left, _CANDIDATES)).fetchall():
        if segment != own and (file := wanted.lock(segment, False)) is not None:
            return Claim(segment, offset, file)
    insert = "INSERT INTO segments (kind, size, charge, claimed) VALUES (?, 0, 0, 0)"
    new = connection.execute(insert, (wanted.kind,)).lastrowid
    file = wanted.lock(new, True)
    if file is None:
        raise OSError(f"the new segment {new} is somebody's already")
    return Claim(new, 0, file)
