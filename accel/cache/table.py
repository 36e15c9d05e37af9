"""The table of a cache: rows in sqlite3, and the budget, which is claimed before anything is written.

One connection for each process, used by one thread at a time. No fork sees one: it waits until no thread uses any,
and those that are open are closed first. (What sqlite3 knows of its file's locks would be wrong in the child, and to
close the parent's connection there would write.)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakSet

from accel.system import fork
from accel.system.imports import LazyModule

sqlite3: Any = LazyModule("sqlite3")

Row = tuple[bytes, int, int, bytes]
"""A row of entries: key, kind, segment, and what ``entry.packed`` made."""

_PRAGMAS = ("synchronous=NORMAL", "cell_size_check=ON", "trusted_schema=OFF", "mmap_size=0", "journal_size_limit=0")
_MADE = (
    "CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS segments (id INTEGER PRIMARY KEY AUTOINCREMENT, kind INTEGER, size INTEGER,"
    " charge INTEGER, claimed INTEGER)",
    "CREATE TABLE IF NOT EXISTS entries (key BLOB, kind INTEGER, segment INTEGER, row BLOB, PRIMARY KEY (key, kind))"
    " WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS of_segment ON entries (segment)",
)
_ROWS = "SELECT kind, segment, row FROM entries WHERE key = ?"
_BUSY, _BUSY_AT_OPENING = 0.05, 10.0  # seconds to wait for another process that writes
_CANDIDATES = 32  # segments that might be filled further, or taken back, looked at each time


class Wanted(NamedTuple):
    """What somebody has to write: ``size`` bytes of a segment, ``charge`` of the budget.

    ``limit``: the bytes after which a segment gets no more. ``own``: the segment that the caller fills already.
    ``lock(segment, whether it is new)`` gives a descriptor that holds its lock, None where another has that.
    """

    kind: int
    size: int
    charge: int
    budget: int
    limit: int
    own: int | None
    lock: Callable[[int, bool], int | None]


class Claim(NamedTuple):
    """Bytes that may be written: in which segment, from where on; ``file``: the segment's, if it was not the writer's.

    ``taken``: the segments that were taken back for it, with the descriptors that hold their locks.
    """

    segment: int
    offset: int
    file: int | None
    taken: Sequence[tuple[int, int]] = ()


class Table:
    """The rows of a folder's cache. Every method may raise ``sqlite3.Error``: ``is_busy`` says which will pass."""

    def __init__(self, file: Path, *, writable: bool) -> None:
        self._file, self._writable = file, writable
        self._connection: Any = None
        _tables.add(self)

    # -- what is asked ----------------------------------------------------------------------------------------

    def rows(self, key: bytes) -> list[tuple[int, int, bytes]]:
        """Kind, segment and row of all that is kept under a key."""
        with _lock:
            return (self._connection or self._connect()).execute(_ROWS, (key,)).fetchall()  # type: ignore[no-any-return]

    def rows_of(self, keys: Iterable[bytes]) -> list[list[tuple[int, int, bytes]]]:
        """``rows`` of many keys, for less."""
        with self._transaction("BEGIN") as connection:
            return [connection.execute(_ROWS, (key,)).fetchall() for key in keys]

    def all_rows(self, after: Row | None = None, count: int = 1000) -> list[Row]:
        """So many rows in their order, after this one."""
        where = "" if after is None else "WHERE (key, kind) > (?, ?)"
        query = f"SELECT key, kind, segment, row FROM entries {where} ORDER BY key, kind LIMIT {count}"
        with _lock:
            connection = self._connection or self._connect()
            return connection.execute(query, () if after is None else after[:2]).fetchall()  # type: ignore[no-any-return]

    def about(self, name: str) -> str | None:
        """What was told of the whole."""
        with self._transaction("BEGIN") as connection:
            found = connection.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
        return found[0] if found else None

    def used(self) -> int:
        """The bytes of the budget that are taken."""
        with _lock:
            return _used(self._connection or self._connect())

    def spare(self, kind: int) -> int:
        """The bytes of the budget that lie in what would be taken back for an entry of this kind."""
        with _lock:
            return _used(self._connection or self._connect(), kind)

    def kinds(self) -> list[tuple[int, int, int, int]]:
        """Each kind: how many entries, in how many segments, and their bytes."""
        query = (
            "SELECT kind, (SELECT count(*) FROM entries WHERE entries.kind = segments.kind), count(*), sum(size)"
            " FROM segments GROUP BY kind ORDER BY kind"
        )
        with _lock:
            return (self._connection or self._connect()).execute(query).fetchall()  # type: ignore[no-any-return]

    def faults(self) -> list[str]:
        """What sqlite3 finds wrong with the table's file."""
        with _lock:
            found = (self._connection or self._connect()).execute("PRAGMA integrity_check(10)").fetchall()
        return [text for (text,) in found if text != "ok"]

    # -- what is changed ----------------------------------------------------------------------------------------

    def make(self, about: dict[str, str]) -> None:
        """Make the tables where there are none, and tell of the whole what was not told before."""
        with _lock:
            connection = self._connect(_BUSY_AT_OPENING)
            connection.execute("PRAGMA journal_mode=WAL")
            with self._transaction() as connection:
                for statement in _MADE:
                    connection.execute(statement)
                connection.executemany("INSERT OR IGNORE INTO about VALUES (?, ?)", about.items())
            self.close()

    def claim(self, wanted: Wanted) -> Claim | None:
        """Claim bytes of a segment, and of the budget; None: it has not so many left."""
        held: list[tuple[int, int]] = []
        try:
            with self._transaction() as connection:
                over = _used(connection) + wanted.charge - wanted.budget
                if over > 0 and not _take_back(connection, wanted, over, held):
                    connection.execute("ROLLBACK")
                    release(held)
                    return None
                claim = _place(connection, wanted)
                if claim.file is not None:
                    held.append((claim.segment, claim.file))
                connection.execute("UPDATE segments SET claimed = ? WHERE id = ?", (wanted.charge, claim.segment))
            return claim._replace(taken=[each for each in held if each[0] != claim.segment])
        except BaseException:
            release(held)
            raise

    def unclaim(self, segment: int) -> None:
        """Give back what was claimed of a segment and not written."""
        with self._transaction() as connection:
            connection.execute("UPDATE segments SET claimed = 0 WHERE id = ?", (segment,))

    def add(self, rows: Sequence[Row], claim: Claim, size: int, charge: int) -> bool:
        """Say where what was written lies; False: the segment was taken back meanwhile."""
        with self._transaction() as connection:
            update = "UPDATE segments SET size = ?, charge = charge + ?, claimed = 0 WHERE id = ? AND size = ?"
            changed = connection.execute(update, (claim.offset + size, charge, claim.segment, claim.offset))
            if changed.rowcount != 1:
                return False
            connection.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", rows)
        return True

    def drop(self, rows: Iterable[tuple[bytes, int, int]]) -> None:
        """Forget entries, by key, kind and segment."""
        with self._transaction() as connection:
            connection.executemany("DELETE FROM entries WHERE key = ? AND kind = ? AND segment = ?", rows)

    def forget_unless(self, known: Callable[[set[int]], None]) -> None:
        """Call ``known`` with all segments that there are, while nobody makes or takes back any."""
        with self._transaction() as connection:
            known({segment for (segment,) in connection.execute("SELECT id FROM segments")})

    # -- the connection -----------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self, begin: str = "BEGIN IMMEDIATE") -> Iterator[Any]:
        with _lock:
            connection = self._connection or self._connect()
            connection.execute(begin)
            try:
                yield connection
                if connection.in_transaction:
                    connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def _connect(self, timeout: float = _BUSY) -> Any:
        mode = "rwc" if self._writable else "ro&immutable=1"
        where = f"{self._file.absolute().as_uri()}?mode={mode}"
        connection = sqlite3.connect(where, timeout, uri=True, isolation_level=None, check_same_thread=False)
        for pragma in _PRAGMAS if self._writable else _PRAGMAS[1:4]:
            connection.execute(f"PRAGMA {pragma}")
        self._connection = connection
        return connection

    def close(self) -> None:
        """Close the connection; the next use opens one."""
        with _lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def leave(self) -> None:
        """Have nothing more to do with a connection that is the parent's."""
        if self._connection is not None:
            fork.leave_to_parent(self._connection)
            self._connection = None


def release(held: Iterable[tuple[int, int]]) -> None:
    """Let go of segments' locks."""
    for _, file in held:
        os.close(file)


def is_busy(error: Exception) -> bool:
    """Whether another process was at it, so that the same may work later."""
    return isinstance(error, sqlite3.OperationalError) and ("locked" in str(error) or "busy" in str(error))


def is_damage(error: Exception) -> bool:
    """Whether the file is not what it should be; else it is the disk, or a right, that is missing."""
    return not isinstance(error, sqlite3.OperationalError) or "no such" in str(error)


def _used(connection: Any, above: int = 0) -> int:
    query = "SELECT coalesce(sum(charge + claimed), 0) FROM segments WHERE kind > ?"
    return int(connection.execute(query, (above,)).fetchone()[0])


def _take_back(connection: Any, wanted: Wanted, over: int, held: list[tuple[int, int]]) -> bool:
    """Take segments back until ``over`` bytes are free, those of the least worthy kind and the oldest first."""
    query = "SELECT id, charge + claimed FROM segments WHERE kind > ? ORDER BY kind DESC, id LIMIT ?"
    for segment, freed in connection.execute(query, (wanted.kind, _CANDIDATES)).fetchall():
        if (file := wanted.lock(segment, False)) is not None:
            held.append((segment, file))
            connection.execute("DELETE FROM entries WHERE segment = ?", (segment,))
            connection.execute("DELETE FROM segments WHERE id = ?", (segment,))
            over -= freed
            if over <= 0:
                return True
    return False


def _place(connection: Any, wanted: Wanted) -> Claim:
    """Where the bytes are to be written: in the caller's segment, in one that nobody fills any more, or a new one."""
    if wanted.own is not None:
        query = "SELECT size FROM segments WHERE id = ? AND kind = ?"
        found = connection.execute(query, (wanted.own, wanted.kind)).fetchone()
        if found and (found[0] == 0 or found[0] + wanted.size <= wanted.limit):
            return Claim(wanted.own, found[0], None)
    query = "SELECT id, size FROM segments WHERE kind = ? AND size <= ? ORDER BY id DESC LIMIT ?"
    left = wanted.limit - wanted.size
    for segment, offset in connection.execute(query, (wanted.kind, left, _CANDIDATES)).fetchall():
        if segment != wanted.own and (file := wanted.lock(segment, False)) is not None:
            return Claim(segment, offset, file)
    insert = "INSERT INTO segments (kind, size, charge, claimed) VALUES (?, 0, 0, 0)"
    new = connection.execute(insert, (wanted.kind,)).lastrowid
    file = wanted.lock(new, True)
    if file is None:
        raise OSError(f"the new segment {new} is somebody's already")
    return Claim(new, 0, file)


# -- around a fork --------------------------------------------------------------------------------------------

_lock = fork.Lock()
_tables: WeakSet[Table] = WeakSet()


class _Apart:
    """The lock of all tables, taken with every connection closed."""

    def acquire(self) -> None:
        _lock.acquire()
        for table in tuple(_tables):
            try:
                table.close()
            except sqlite3.Error:
                table.leave()

    def release(self) -> None:
        _lock.release()


def _in_child() -> None:
    for table in tuple(_tables):
        table.leave()  # an interrupt came before it was closed


_apart = _Apart()
fork.wait_for(lambda: _apart, fork.CACHES)
fork.register(in_child=_in_child)
