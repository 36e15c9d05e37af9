"""The table of a cache: rows in sqlite3, and the budget, which is claimed before anything is written.

A process has one connection, used by one thread at a time. It is closed before a fork, which waits until no thread
uses it: in the child sqlite3's record of its file locks would be wrong, and closing the parent's connection there
would write.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from accel.cache import budget, segments
from accel.cache.budget import Claim, ClaimRequest
from accel.cache.entry import KINDS
from accel.system import fork
from accel.system.imports import LazyModule

sqlite3: Any = LazyModule("sqlite3")

Result = TypeVar("Result")

Row = tuple[int, Any]
"""A row: its number (``entry.place_of`` of its key, plus its kind), and the bytes that ``entry.packed`` made."""

_PRAGMAS = ("cell_size_check=ON", "trusted_schema=OFF", "mmap_size=0", "cache_size=-1024")
_PRAGMAS_TO_WRITE = ("synchronous=NORMAL", "wal_autocheckpoint=4000", "journal_size_limit=16777216")
_MADE = (
    "CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT)",
    *budget.MADE,
    "CREATE TABLE entries (id INTEGER PRIMARY KEY, segment INTEGER, row BLOB)",
    "CREATE INDEX of_segment ON entries (segment)",
)
_TOGETHER = 32  # rows that are asked for at once
_ROW = "SELECT id, row FROM entries WHERE id = ?"
_ROWS_OF = f"SELECT id, row FROM entries WHERE id IN ({','.join('?' * _TOGETHER)})"
_INDEXED = "entries INDEXED BY of_segment"  # the SQL index, a tenth of the size of the rows
_NUMBERS = f"SELECT id FROM {_INDEXED}"
_NO_DAMAGE = ("locked", "locking", "disk I/O", "is full", "readonly", "read-only", "unable to open", "out of memory")
_BUSY, _BUSY_AT_OPENING = 0.05, 10.0  # seconds to wait for another process that writes


class Table:
    """The rows of a folder's cache. Every method may raise ``sqlite3.Error``; ``is_busy`` tells which are temporary."""

    def __init__(self, file: Path, *, writable: bool) -> None:
        self._file, self._writable = file, writable
        self._connection: Any = None
        self._connections = 0
        self._patience = _BUSY_AT_OPENING
        self._folder: tuple[int, int] | None = None  # device and inode
        _tables.add(self)

    # -- queries ----------------------------------------------------------------------------------------------

    def read(self, query: Callable[..., Result], *args: Any) -> Result:
        """Call a function of the connection that only reads."""
        with _lock:
            return query(self._connection or self._connect(), *args)

    def _select(self, query: str, *args: Any) -> list[Any]:
        return self.read(lambda connection: connection.execute(query, args).fetchall())

    def rows_of(self, numbers: Sequence[int]) -> list[Row]:
        """The rows with these numbers."""
        found: list[Row] = []
        few = numbers if len(numbers) < _TOGETHER // 4 else ()
        with _lock:
            execute = (self._connection or self._connect()).execute
            for number in few:
                found += execute(_ROW, (number,)).fetchall()
            for first in range(0, 0 if few else len(numbers), _TOGETHER):
                some = numbers[first : first + _TOGETHER]
                # the same statement for any count, so that sqlite3 keeps it prepared
                found += execute(_ROWS_OF, (*some, *[some[0]] * (_TOGETHER - len(some)))).fetchall()
        return found

    def numbers(self) -> npt.NDArray[np.int64]:
        """The numbers of all rows, ascending."""
        return self.read(lambda each: np.sort(np.fromiter((number for (number,) in each.execute(_NUMBERS)), np.int64)))

    def rows_after(self, number: int, count: int = 256) -> list[Row]:
        return self._select("SELECT id, row FROM entries WHERE id > ? ORDER BY id LIMIT ?", number, count)

    def version(self) -> tuple[int, int]:
        """A value that changes when another process changes the table."""
        with _lock:
            [(version,)] = self._select("PRAGMA data_version")
            return self._connections, version

    def about(self, name: str) -> str | None:
        """A property of the whole cache, such as its version; None if it is not there."""
        if not self._select("SELECT 1 FROM sqlite_master WHERE name = 'about'"):
            return None
        found = self._select("SELECT value FROM about WHERE name = ?", name)
        return found[0][0] if found else None

    def counts(self) -> dict[int, int]:
        """The number of entries of each kind; at -1, the number of keys that have any."""
        kinds = self._select(f"SELECT id & {KINDS - 1}, count(*) FROM {_INDEXED} GROUP BY 1")
        [(keys,)] = self._select(f"SELECT count(DISTINCT id & {-KINDS}) FROM {_INDEXED}")
        return {**dict(kinds), -1: keys}

    def faults(self, *, thorough: bool = True) -> list[str]:
        """Descriptions of the table's faults; ``thorough``: sqlite3 checks its whole file."""
        found = self._select("PRAGMA integrity_check(10)") if thorough else []
        return [text for (text,) in found if text != "ok"] + self.read(budget.faults)

    # -- changes ----------------------------------------------------------------------------------------------

    def make(self, about: dict[str, str]) -> None:
        """Make the tables, none of which may exist, and write the properties of the whole cache."""
        with _lock:
            self.close()
            connection = self._connect()
            self._file.chmod(0o600)  # sqlite3's log file gets the same mode
            connection.execute("PRAGMA journal_mode=WAL")
            with self.transaction():
                for statement in _MADE:
                    connection.execute(statement)
                connection.executemany("INSERT INTO about VALUES (?, ?)", about.items())

    def claim(self, request: ClaimRequest) -> Claim | None:
        """Claim bytes of a segment and of the budget; None if not enough are left."""
        locks: list[tuple[int, int]] = []
        try:
            with self.transaction() as connection:
                claim = budget.claim(connection, request, locks)
                if claim is None:
                    connection.execute("ROLLBACK")
        except BaseException:
            segments.release(locks)
            raise
        if claim is None:
            segments.release(locks)
        return claim

    def add(self, rows: Mapping[int, Any], claim: Claim, size: int, charge: int) -> bool:
        """Add the rows of entries that were written; False if the segment was taken back meanwhile."""
        with self.transaction() as connection:
            there = budget.written(connection, claim, size, charge)
            if there:
                insert = "INSERT OR REPLACE INTO entries VALUES (?, ?, ?)"
                connection.executemany(insert, [(number, claim.segment, row) for number, row in rows.items()])
        return there

    def mend(self) -> int:
        """Mend the damaged rows of segments; return how many there were."""
        if not self.read(budget.damaged):
            return 0
        with self.transaction() as connection:
            return budget.mend(connection)

    def drop(self, rows: Iterable[Row]) -> None:
        """Delete rows that have not changed since."""
        with self.transaction() as connection:
            connection.executemany("DELETE FROM entries WHERE id = ? AND row IS ?", rows)

    # -- the connection -----------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """The connection, in a transaction that no other process can write in, which is rolled back on an error."""
        with _lock:
            connection = self._connection or self._connect()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                if connection.in_transaction:
                    connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def hurry(self) -> None:
        """From now on wait for other processes only as long as training can afford."""
        self._patience = _BUSY
        with _lock:
            if self._connection is not None:  # kept: opening another takes a millisecond
                self._connection.execute(f"PRAGMA busy_timeout={round(1000 * _BUSY)}")

    def _connect(self) -> Any:
        found = os.stat(self._file.parent)
        self._folder = self._folder or (found.st_dev, found.st_ino)
        if self._folder != (found.st_dev, found.st_ino):
            raise FileNotFoundError("another folder has its name now")
        mode = "rwc" if self._writable else "ro&immutable=1"
        where = f"{self._file.absolute().as_uri()}?mode={mode}"
        self._connection = sqlite3.connect(
            where, timeout=self._patience, uri=True, isolation_level=None, check_same_thread=False
        )
        self._connections += 1
        try:
            for pragma in (*_PRAGMAS, *(_PRAGMAS_TO_WRITE if self._writable else ())):
                self._connection.execute(f"PRAGMA {pragma}")
        except BaseException:
            self.close()
            raise
        return self._connection

    def close(self) -> None:
        """Close the connection; the next use opens one."""
        with _lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def leave(self) -> None:
        """Abandon a connection that belongs to the parent process."""
        if self._connection is not None:
            fork.leave_to_parent(self._connection)
            self._connection = None


def is_busy(error: Exception) -> bool:
    """Whether the error is that another process was writing, so that a later attempt may succeed."""
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


def is_damage(error: Exception) -> bool:
    """Whether the error means a damaged file, rather than a lack of disk, permission or memory."""
    return isinstance(error, sqlite3.Error) and not any(text in str(error) for text in _NO_DAMAGE)


# -- around a fork --------------------------------------------------------------------------------------------

_lock = fork.Lock()
_tables: WeakSet[Table] = WeakSet()


class _Apart:
    """The lock of all tables; acquiring it closes every connection."""

    def acquire(self) -> None:
        _lock.acquire()
        for table in tuple(_tables):
            table.close()

    def release(self) -> None:
        _lock.release()


def _in_child() -> None:
    for table in tuple(_tables):
        table.leave()  # still open only if an interrupt came before it was closed


_apart = _Apart()
fork.wait_for(lambda: _apart, fork.CACHES)
fork.register(in_child=_in_child)
