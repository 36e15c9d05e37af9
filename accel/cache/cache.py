"""A cache on disk: look up, read, put. It is never in the way: what fails is counted, said once, and done without."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from accel.cache import folder as folders
from accel.cache import table as tables
from accel.cache.entry import FORMAT, LARGEST, Entry, File, ends_of, packed, packed_key, unpacked
from accel.cache.folder import Unusable
from accel.cache.segments import Segments
from accel.cache.table import Table, Wanted
from accel.codec.jpeg import digest
from accel.system import counters, fork, log
from accel.system.memory import Key

Result = TypeVar("Result")

DAMAGED = "an entry of the cache was damaged"

_WAITING = 64  # entries, and bytes, that are written together
_WAITING_BYTES = 32 << 20
_SMALLEST_SEGMENT, _LARGEST_SEGMENT, _SEGMENTS = 4 << 20, 256 << 20, 256
_ROW, _OF_ROW = 128, 2  # bytes of a row in the table besides its content; a table's pages are half full at least
_FRESH = 1.0  # seconds for which what the budget has left is believed


class _Waiting(NamedTuple):
    """An entry that is yet to be written: its place is not known."""

    entry: Entry
    content: bytes

    @property
    def charge(self) -> int:
        """What it takes of the budget, at most."""
        entry = self.entry
        row = len(entry.header) + len(entry.meta) + 12 * len(entry.ends) + 3 * len(entry.key) + _ROW
        return len(self.content) + _OF_ROW * row


class Cache:
    """The cache in a folder, shared with all processes that have opened it, within a budget in bytes.

    Any thread may call any method, and a forked child has the cache as its parent had.
    """

    def __init__(self, folder: Path, budget: int, table: Table, writable: bool, in_use: int | None) -> None:
        """For ``open`` alone. ``in_use``: a descriptor that tells others that somebody uses the folder."""
        self.folder, self.budget = folder, budget
        self._table, self._segments, self._in_use = table, Segments(folder / folders.SEGMENTS), in_use
        self._limit = min(max(budget // _SEGMENTS, _SMALLEST_SEGMENT), _LARGEST_SEGMENT)
        self._broken: str | None = None
        self._mute: str | None = None if writable else f"the cache's folder is read-only: {folder}"
        self._filling = fork.Lock()
        self._full: dict[int, float] = {}  # the kinds that there was no room for, and since when
        self._left: tuple[float, dict[int, int]] = (0.0, {})  # when it was asked; by kind
        self._begin()

    def _begin(self) -> None:
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self._dropped: set[tuple[bytes, int, int]] = set()
        self._own: dict[int, tuple[int, int]] = {}  # by kind: the segment that this process fills, its descriptor

    @classmethod
    def open(cls, folder: str | Path | None, budget: int, *, version: str) -> Cache | None:
        """The cache in a folder, which is made if there is none; None where there can be none, which is counted.

        ``folder``: None is the user's in memory. ``version``: of what is kept there; another's folder is left as it is,
        and not used.
        """
        place = folders.in_memory() if folder is None else Path(folder).expanduser().absolute()
        with _opening:
            cache = _opened.get(str(place))
            if cache is None or cache._broken is not None:
                try:
                    cache = _open(place, budget, f"{FORMAT} {version}")
                except Unusable as error:
                    counters.fallback(f"no cache: {error}")
                    return None
                _opened[str(place)] = cache
            cache.budget = budget
            return cache

    # -- what is there ------------------------------------------------------------------------------------------

    def look(self, key: Key | bytes) -> File | None:
        """What is kept of a file; None: nothing."""
        if self._broken is not None:
            return None
        name = packed_key(key)
        rows = self._asked(self._table.rows, name)
        return self._file(name, rows) if rows else None

    def look_many(self, keys: Iterable[Key | bytes]) -> list[File | None]:
        """``look`` for many keys, for less."""
        names = [packed_key(key) for key in keys]
        found = self._asked(self._table.rows_of, names) if self._broken is None else None
        return [
            self._file(name, rows) if rows else None
            for name, rows in zip(names, found or [[]] * len(names), strict=True)
        ]

    def _file(self, name: bytes, rows: Sequence[tuple[int, int, bytes]]) -> File | None:
        entries: dict[int, Entry] = {}
        for kind, segment, row in rows:
            entry = unpacked(name, kind, segment, row)
            if entry is None:
                counters.fallback(DAMAGED)
                self._drop(name, kind, segment)
            elif not self._dropped or (name, kind, segment) not in self._dropped:
                entries[kind] = entry
        return File(next(iter(entries.values())).header, entries) if entries else None

    def read(self, entry: Entry, first: int, last: int, out: Any) -> bool:
        """Read the parts first to last (excluded) of an entry into a buffer of just their size.

        False: they are not there any more, or damaged, which is counted; the buffer then has anything in it.
        """
        begin, end = entry.span(first, last)
        view = memoryview(out).cast("B")
        if len(view) != end - begin:
            raise ValueError(f"a buffer of {end - begin} bytes is needed, got {len(view)}")
        try:
            sound = self._segments.read(entry.segment, entry.offset + begin, view)
        except OSError:
            sound = False
        at = 0
        for part in range(first, last) if sound else ():
            until = entry.ends[part] - begin
            if digest(view[at:until]) != entry.digests[part]:
                sound = False
                break
            at = until
        if not sound:
            self._lost(entry)
        return sound

    def _lost(self, entry: Entry) -> None:
        """Count an entry that cannot be read, unless it was taken back; it will not be found again."""
        self._segments.forget(entry.segment)
        rows = self._asked(self._table.rows, entry.key) or ()
        if any((kind, segment) == (entry.kind, entry.segment) for kind, segment, _ in rows):
            counters.fallback(DAMAGED)
            self._drop(entry.key, entry.kind, entry.segment)

    def _drop(self, key: bytes, kind: Any, segment: Any) -> None:
        self._dropped.add((key, kind, segment))

    # -- what is put --------------------------------------------------------------------------------------------

    def put(self, key: Key | bytes, header: bytes, kind: int, parts: Sequence[Any], meta: bytes = b"") -> bool:
        """Keep something of a file, in the place of what was kept of that kind; False: it is not kept.

        It is written, and found, with others, by ``flush`` at the latest; ``parts`` are copied.
        """
        content = b"".join(parts)
        if len(content) > LARGEST or len(parts) > 0xFFFF or not self.room(kind, len(content)):
            return False
        digests = [digest(part) for part in parts]
        entry = Entry(packed_key(key), kind, 0, 0, ends_of(parts), digests, bytes(header), bytes(meta))
        self._waiting.append(_Waiting(entry, content))
        self._waiting_bytes += len(content)
        if len(self._waiting) >= _WAITING or self._waiting_bytes >= _WAITING_BYTES:
            self.flush()
        return True

    def room(self, kind: int, size: int) -> bool:
        """Whether an entry of a kind and size would be kept, as far as is known without much ado."""
        if self._broken is not None or self._mute is not None:
            return False
        when, left = self._left
        if kind not in left or monotonic() - when > _FRESH:
            used, spare = self._asked(self._table.used), self._asked(self._table.spare, kind)
            if used is None or spare is None:
                return False
            left = {kind: self.budget - used + spare}
            self._left = (monotonic(), left)
        return self._waiting_bytes + size < left[kind]

    def used(self) -> tuple[int, int]:
        """The bytes that are taken, and the budget."""
        return (self._asked(self._table.used) or 0) if self._broken is None else 0, self.budget

    def flush(self) -> None:
        """Write what was put, so that all processes find it: for the end of a batch."""
        if not (self._waiting or self._dropped) or self._broken is not None or self._mute is not None:
            return
        with self._filling:
            waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
            dropped = set(self._dropped)
            if dropped and self._asked(self._table.drop, dropped, changing=True) is not None:
                self._dropped -= dropped
            for kind in sorted({each.entry.kind for each in waiting}):
                group = [each for each in waiting if each.entry.kind == kind]
                while group:
                    count = _that_fit(group, self._limit)
                    self._write(kind, group[:count])
                    del group[:count]

    def _write(self, kind: int, group: list[_Waiting]) -> None:
        """Write entries of a kind side by side, and say where they are."""
        known = self._asked(self._table.rows_of, [each.entry.key for each in group]) or ()
        for each, rows in zip(tuple(group), known, strict=False):
            if any(_says(row, each.entry) for row in rows):
                group.remove(each)
        size, charge = sum(len(each.content) for each in group), sum(each.charge for each in group)
        own = self._own.get(kind)
        wanted = Wanted(kind, size, charge, self.budget, self._limit, own[0] if own else None, self._segments.lock)
        claimed = self._asked(self._table.claim, wanted, changing=True) if group else None
        if claimed is None:
            return
        self._segments.remove(claimed.taken)
        if claimed.file is not None:
            self._let_go(kind)
            self._own[kind] = own = claimed.segment, claimed.file
        assert own is not None
        at, made = claimed.offset, list[tables.Row]()
        for each in group:
            entry = each.entry._replace(segment=claimed.segment, offset=at)
            made.append((entry.key, kind, entry.segment, packed(entry)))
            at += len(each.content)
        try:
            self._segments.write(own[1], claimed.offset, [each.content for each in group])
        except OSError as error:
            self._asked(self._table.unclaim, claimed.segment, changing=True)
            self._stop(f"nothing more is written to the cache: {error}: {self.folder}")
            return
        if self._asked(self._table.add, made, claimed, size, charge, changing=True) is not True:
            self._let_go(kind)

    def _let_go(self, kind: int) -> None:
        """Fill a segment no further."""
        own = self._own.pop(kind, None)
        if own is not None:
            with suppress(OSError):
                os.close(own[1])

    # -- what goes wrong ----------------------------------------------------------------------------------------

    def _asked(self, ask: Callable[..., Result], *given: Any, changing: bool = False) -> Result | None:
        """What the table says; None where it cannot."""
        try:
            return ask(*given)
        except (tables.sqlite3.Error, OSError, MemoryError, ValueError, OverflowError) as error:
            if not isinstance(error, OSError) and not tables.is_busy(error):
                if tables.is_damage(error):
                    self._break(f"the cache is damaged and not used any more: {error}: {self.folder}")
                    return None
            elif not isinstance(error, OSError):
                return None
            if changing:
                self._stop(f"nothing more is written to the cache: {error}: {self.folder}")
        return None

    def _stop(self, reason: str) -> None:
        """Write nothing more, in this process."""
        self._mute = reason
        counters.fallback(reason)

    def _break(self, reason: str) -> None:
        """Do without, in this process; whoever opens it next, when nobody uses it, begins anew."""
        self._broken = reason
        with suppress(OSError):
            (self.folder / folders.DAMAGED).touch(mode=0o600)
        counters.fallback(reason)

    def in_child(self) -> None:
        """Leave to the parent what it has yet to write, and the segments that it fills."""
        for kind in tuple(self._own):
            self._let_go(kind)
        self._begin()


def _that_fit(group: Sequence[_Waiting], limit: int) -> int:
    """How many of these, from the first on, a segment takes: one at least."""
    size = 0
    for count, each in enumerate(group):
        size += len(each.content)
        if count and size > limit:
            return count
    return len(group)


def _says(row: tuple[int, int, bytes], entry: Entry) -> bool:
    """Whether a row is of the very same entry."""
    found = unpacked(entry.key, *row)
    if found is None or found.kind != entry.kind or (found.header, found.meta) != (entry.header, entry.meta):
        return False
    return list(found.ends) == list(entry.ends) and list(found.digests) == list(entry.digests)


def _open(place: Path, budget: int, version: str) -> Cache:
    """Open or make the cache in a folder.

    Raises:
        Unusable: there can be none.
    """
    writable = folders.prepared(place)
    table = Table(place / folders.TABLE, writable=writable)
    try:
        if not writable:
            _check(table, version, place)
            return Cache(place, budget, table, False, None)
        with folders.opening(place):
            _renew_if_damaged(place, table, version)
            in_use = folders.locked(place / folders.IN_USE, exclusive=False, patience=1.0)
            cache = Cache(place, budget, table, True, in_use)
            _check(table, version, place)
            table.forget_unless(cache._segments.remove_others)
            return cache
    except (tables.sqlite3.Error, OSError) as error:
        raise Unusable(f"{error}: {place}") from error


def _renew_if_damaged(place: Path, table: Table, version: str) -> None:
    """Make the tables; where that shows, or it was found before, that they are damaged, begin anew.

    Raises:
        Unusable: they are damaged, and somebody uses them.
    """
    found: Any = "damage" if (place / folders.DAMAGED).exists() else None
    if not found:
        try:
            table.make({"version": version})
            return
        except tables.sqlite3.Error as error:
            if not tables.is_damage(error):
                raise
            found = error
    table.close()
    alone = folders.locked(place / folders.IN_USE, exclusive=True)
    if alone is None:
        raise Unusable(f"it is damaged ({found}), and others use it still: {place}")
    folders.empty(place)
    os.close(alone)
    table.make({"version": version})
    log.note(log.WARNING, "the cache was damaged (%s), and begins anew: %s", found, place)


def _check(table: Table, version: str, place: Path) -> None:
    """Raises Unusable where a cache is another version's."""
    if (found := table.about("version")) != version:
        said = f"it is of version {found!r}, not {version!r}; `python -m accel cache clear` empties it: {place}"
        raise Unusable(said)


_opening = fork.Lock()
_opened: dict[str, Cache] = {}


def _in_child() -> None:
    for cache in _opened.values():
        cache.in_child()


fork.register(in_child=_in_child)
