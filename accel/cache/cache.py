"""A cache on disk: look up, read, put. It never fails its user: an error is counted, logged once, and worked around."""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping, Sequence
from itertools import chain
from multiprocessing.util import Finalize
from pathlib import Path
from time import monotonic
from typing import Any

from accel.cache import budget as budgets
from accel.cache import folder as folders
from accel.cache import reading
from accel.cache.entry import (
    KINDS,
    LARGEST,
    LONGEST,
    Entry,
    File,
    NewEntry,
    entries_of,
    packed,
    packed_key,
    place_of,
    rows_of,
    sides,
    unpacked,
)
from accel.cache.faults import ENTRY, TOO_LARGE, Faults
from accel.cache.filling import Filling
from accel.cache.folder import Unusable
from accel.cache.numbers import Numbers
from accel.cache.segments import Segments
from accel.cache.table import Row, Table, is_damage, sqlite3
from accel.cache.worth import Worth
from accel.system import counters, fork, log
from accel.system.file_locks import locked
from accel.system.memory import Key

_KNOWN = 1 << 13  # files whose entries a process remembers
_PATIENCE = 20  # attempts to write to the table when the cache is closed
_RECHECKED = 0.25  # seconds between looks for changes by other processes


class Cache:
    """The cache in a folder, shared with all processes that have opened it, within a budget in bytes.

    Any thread may call any method, and a forked child has the cache as its parent had.
    """

    def __init__(self, folder: Path, budget: int, version: str) -> None:
        """Called by ``open`` only."""
        self.folder = folder
        writable = folders.prepared(folder)
        self._table = Table(folder / folders.TABLE, writable=writable)
        self._in_use: int | None = None  # a descriptor whose lock tells others that it is used
        try:
            self._segments = Segments(folder / folders.SEGMENTS)
            if writable:
                self._in_use = _prepared(folder, self._table, self._segments, version)
            else:
                _check(self._table.about("version"), version, folder)
        except (sqlite3.Error, OSError, ValueError) as error:
            self._table.close()
            raise Unusable(f"{error}: {folder}") from error
        except Unusable:
            self._table.close()
            raise
        self._faults = Faults(folder, writable=writable)
        self.worth = Worth()
        self._filling = Filling(budget, self._table, self._segments, self._faults, self.worth)
        self._dropped: set[Row] = set()  # rows of damaged entries
        self._numbers = Numbers(self._table, self._faults)
        self._known: dict[bytes, File] = {}
        self._known_until = 0.0
        self._version: Any = None
        self._ends = False  # whether this process flushes as it ends

    @classmethod
    def open(cls, folder: str | Path | None, budget: int, *, version: str) -> Cache:
        """The cache in a folder, made if there is none.

        ``folder``: None is the user's folder in shared memory. ``budget``: in bytes. ``version``: the version of the
        folder; one of another version is left as it is, and not used. A process has one cache for each folder.

        Raises:
            Unusable: the folder cannot be a cache.
        """
        place = folders.in_memory() if folder is None else Path(folder).expanduser().absolute()
        with _opening:
            cache = _opened.get(place)
            if cache is None or cache._faults.broken:
                cache = _opened[place] = cls(place, budget, version)
            cache._filling.budget = folders.limited(place, budget) if place == folders.in_memory() else budget
        log.flush()
        return cache

    def look(self, key: Key | bytes) -> File | None:
        """The entries of one file; None if there are none."""
        return self.look_all([key])[0]

    def look_all(self, keys: Sequence[Key | bytes]) -> list[File | None]:
        """The entries of several files, looked up together; None for a file that has none."""
        if monotonic() > self._known_until:
            self._renew()
        names = [key if isinstance(key, bytes) else packed_key(key) for key in keys]
        found = list(map(self._known.get, names))
        if None not in found or self._faults.broken:
            return found
        new = self._look({place_of(name): name for name, file in zip(names, found, strict=True) if file is None})
        return [new.get(name) if file is None else file for name, file in zip(names, found, strict=True)]

    def _look(self, places: Mapping[int, bytes]) -> dict[bytes, File | None]:
        """The entries of the files whose keys have these places, by key, from the table and from rows not in it yet."""
        numbers = self._numbers.at([*places])
        if not numbers:
            return {}
        rows = self._filling.waiting(numbers)
        for row in self._faults.ask(self._table.rows_of, [*chain.from_iterable(numbers.values())]) or ():
            rows.setdefault(row[0] & -KINDS, []).insert(0, row)  # before those that wait, which are newer
        found = {places[place]: self._file(places[place], own) for place, own in rows.items()}
        for file in found.values():
            if file is not None and len(self._known) < _KNOWN:
                self._known[next(iter(file.entries.values())).key] = file  # one object
        return found

    def _renew(self) -> None:
        """Forget what was found if the table has changed since."""
        version = None if self._faults.broken else self._faults.ask(self._table.version)
        if (self._filling.written, version) != self._version or version is None:
            self._known.clear()
        self._numbers.renew(version)
        self._version = self._filling.written, version
        self._known_until = 0.0 if version is None else monotonic() + _RECHECKED

    def _file(self, name: bytes, rows: Sequence[Row]) -> File | None:
        entries: dict[int, Entry] = {}
        for each in rows:
            entry = unpacked(each[1])
            if entry is None or entry.kind != each[0] % KINDS:
                self._drop(each)
            elif entry.key == name and not (self._dropped and each in self._dropped):
                entries[entry.kind] = entry
        return File(next(iter(entries.values())).header, entries) if entries else None

    def read(self, entry: Entry, first: int, last: int, out: Any) -> bool:
        """Read the parts ``first`` to ``last`` (excluded) of an entry into a buffer of exactly their size.

        False if they are gone, or damaged, which is counted; the buffer's content is then undefined.
        """
        return not self.read_all([(entry, first, last)], out)

    def read_all(self, parts: Sequence[tuple[Entry, int, int]], out: Any) -> list[int]:
        """Read parts of many entries, one behind the other; return the positions of those that are damaged or gone."""
        spans = [entry.span(first, last) for entry, first, last in parts]
        starts = [*sides([end - begin for begin, end in spans])]
        view = memoryview(out).cast("B")
        if len(view) != starts[-1]:
            raise ValueError(f"a buffer of {starts[-1]} bytes is needed, got {len(view)}")
        lost, done = list[int](), 0
        while done < len(parts):
            sound = self._segments.read(parts[done:], view[starts[done] :])
            done += sound
            if done < len(parts):
                self._lost(parts[done][0])
                lost.append(done)
                done += 1
        return lost

    def together(self, entries: Sequence[Entry]) -> reading.EntryTable | None:
        """Entries in the form that compiled code reads; None if each must be read by itself."""
        return reading.together(self._segments.files(entries), entries)

    def _lost(self, entry: Entry) -> None:
        """Count an entry that cannot be read, unless it was taken back, and stop finding it, at least for a while."""
        self._segments.forget(entry.segment)
        self._known.clear()
        row = entry.number, packed(entry)
        if self._segments.lacks(entry.segment):  # the entry may be sound
            self._known[entry.key] = File(entry.header, {})
        else:
            waiting = self._filling.waiting([row[0] & -KINDS]).values()
            if row in [*(self._faults.ask(self._table.rows_of, row[:1]) or ()), *chain(*waiting)]:
                self._drop(row)

    def _drop(self, row: Row) -> None:
        """Count a damaged entry once, and have its row deleted."""
        if row not in self._dropped:
            self._dropped.add(row)
            counters.fallback(ENTRY)
            self._filling.drop(row)

    def put(
        self,
        key: Key | bytes,
        header: bytes,
        shelf: int,
        content: Any,
        meta: bytes = b"",
        ends: Sequence[int] | None = None,
    ) -> bool:
        """Keep one entry of a file, replacing any of the same kind; False if it is not kept.

        It is written at once, found by this process from now on, and by others after ``flush``.

        Args:
            content: a buffer of bytes.
            ends: where each of its parts ends, ascending up to its size; None if it is one part.
        """
        ends = [memoryview(content).nbytes] if ends is None else ends
        return self.put_all([(key, header, meta, ends)], shelf, content)[0]

    def put_all(
        self, files: Sequence[NewEntry], shelf: int, content: Any, begins: Sequence[int] | None = None
    ) -> list[bool]:
        """Put entries of several files; return which of them are kept.

        ``begins``: where the content of each begins, ascending; None if they lie side by side.
        """
        if not self._filling.writes():
            return [False] * len(files)
        sizes = [ends[-1] if len(ends) else 0 for *_, ends in files]
        longest = max(map(len, chain.from_iterable([each[1:] for each in files])), default=0)
        if longest > LONGEST or max(sizes, default=0) > LARGEST:
            counters.fallback(TOO_LARGE)
            return [False] * len(files)
        kind, begins = shelf % KINDS, [*sides(sizes)] if begins is None else begins
        entries = entries_of(files, kind, content, begins)
        places = rows_of(entries)
        there, content = self._has_all(entries, places), memoryview(content).cast("B")
        kept = self._filling.put(entries, begins, content, shelf, there)
        self._numbers.add([place for place, done in zip(places, kept, strict=True) if done])
        for entry in entries:
            self._known.pop(entry.key, None)
        return kept

    def _has_all(self, entries: Sequence[Entry], places: Sequence[int]) -> list[bool]:
        """For each entry, at its place, whether the cache has it: others may have put it in since the look-up."""
        rows = dict(self._faults.ask(self._table.rows_of, places) or ())
        waiting = self._filling.waiting({place & -KINDS for place in places})
        if not rows and not waiting:
            return [False] * len(entries)
        has = list[bool]()
        for entry, place in zip(entries, places, strict=True):
            own = [(place, rows[place])] if place in rows else []
            file = self._file(entry.key, own + waiting.get(place - entry.kind, []))
            known = None if file is None else file.entries.get(entry.kind)
            has.append(known is not None and known.is_as(entry))
        return has

    def room(self, shelf: int, size: int) -> bool:
        """Whether an entry of this shelf and size would probably be kept: a cheap estimate."""
        return self._filling.room(shelf, size)

    def used(self) -> tuple[int, int]:
        """The bytes of the budget that are taken, and the budget."""
        return self._faults.ask(self._table.read, budgets.used) or 0, self._filling.budget

    def flush(self, *, if_due: bool = False) -> None:
        """Let all processes find what was put; ``if_due``: only if it has waited for long (called after each batch)."""
        if if_due:
            if not self._ends:
                self._ends = True
                Finalize(None, self.flush, exitpriority=0)  # for a child process, which runs no atexit functions
            if not self._filling.is_due():
                return
        if self._filling.flush():
            self._known.clear()
            self._known_until = 0.0

    def close(self) -> None:
        """Flush, and release the folder."""
        self._filling.flush(_PATIENCE)
        self._filling.let_go()
        self._faults.broken = True
        self._faults.ask(self._table.close)
        if self._in_use is not None:
            os.close(self._in_use)
            self._in_use = None

    def in_child(self) -> None:
        """Leave to the parent process its pending entries and the segments that it is filling."""
        self._filling.let_go(in_child=True)
        self._filling.begin()
        self._ends = False
        self._known.clear()


# -- opening a folder: made if there is nothing, begun anew if it is damaged, refused if it cannot be used --------


def _prepared(folder: Path, table: Table, segments: Segments, version: str) -> int:
    """Make or check a cache; return a descriptor whose lock tells others that it is in use."""
    with folders.opening(folder):
        in_use = _made(folder, table, version)
        with table.transaction() as connection:  # while no process can add or remove any
            segments.remove_others({number for (number,) in connection.execute("SELECT id FROM segments")})
        table.hurry()
    return in_use


def _made(folder: Path, table: Table, version: str) -> int:
    """Make or check the tables; return a descriptor whose lock tells others that they are in use."""
    alone = locked(folder / folders.IN_USE, exclusive=True)
    try:
        damage = _damage(folder, table, version, alone=alone is not None)
        if damage is not None and alone is None:
            raise Unusable(f"it is damaged ({damage}), and others use it still: {folder}")
        if damage is not None:
            table.close()
            folders.empty(folder)
            table.make({"version": version})
            log.note(log.WARNING, "the cache begins anew (%s): %s", damage, folder)
    finally:
        if alone is not None:
            os.close(alone)
    in_use = locked(folder / folders.IN_USE, exclusive=False, patience=1.0)
    if in_use is None:
        raise Unusable(f"it is being cleared: {folder}")
    return in_use


def _damage(folder: Path, table: Table, version: str, *, alone: bool) -> Any:
    """Check the table, or make one: the damage found, None if there is none. ``alone``: no other process uses it.

    The user's folder in memory, which nobody has named, may as well have been another version's.
    """
    if (folder / folders.DAMAGED).exists():
        return "an earlier run found it damaged"
    try:
        found = table.about("version")
        if found is None:
            table.make({"version": version})
        elif found != version and alone and folder == folders.in_memory():
            return f"it was of version {found!r}, not {version!r}"
        else:
            _check(found, version, folder)
        if alone:
            with table.transaction() as connection:
                budgets.reopen(connection)
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
        return error
    return None


def _check(found: str | None, version: str, folder: Path) -> None:
    if found != version:
        reason = f"it is of version {found!r}, not {version!r}, and left as it is"
        raise Unusable(f"{reason} (`python -m accel cache clear` empties it): {folder}")


# -- the caches of this process ------------------------------------------------------------------------------

_opening = fork.Lock()
_opened: dict[Path, Cache] = {}


def _in_child() -> None:
    for cache in _opened.values():
        cache.in_child()


@atexit.register
def _at_exit() -> None:
    for cache in _opened.values():
        cache.close()


fork.register(in_child=_in_child)
