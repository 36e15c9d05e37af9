"""Listing, verifying and emptying a cache of any version, for people."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from accel.cache import budget
from accel.cache import folder as folders
from accel.cache.entry import INDEX, KINDS, PIXELS, PLANES, RESULT, unpacked
from accel.cache.folder import Unusable
from accel.cache.segments import Segments
from accel.cache.table import Table, sqlite3
from accel.system.file_locks import locked

NAMES = {INDEX: "stream indexes", RESULT: "results", PIXELS: "pictures", PLANES: "planes"}
"""The names of the kinds, for people."""


class KindSummary(NamedTuple):
    """The number of entries and segments of one kind, and the bytes of its segments."""

    kind: int
    entries: int
    segments: int
    size: int


class Summary(NamedTuple):
    """A summary of a cache: ``keys`` is the number of files that have entries, ``size`` its bytes on the disk.

    ``faults``: the faults that a quick check finds.
    """

    version: str
    kinds: list[KindSummary]
    keys: int
    size: int
    faults: list[str]


class Verification(NamedTuple):
    """The number of entries read, and descriptions of the damaged ones and of the table's faults."""

    entries: int
    damaged: list[str]
    faults: list[str]


def survey(folder: Path) -> Summary:
    """Summarize the cache in a folder.

    Raises:
        Unusable: there is none, or its table cannot be read.
    """
    with _table(folder) as table:
        counts, contents = table.counts(), {kind: rest for kind, *rest in table.read(budget.contents)}
        keys = counts.pop(-1)
        kinds = [
            KindSummary(kind, counts.get(kind, 0), *contents.get(kind, (0, 0))) for kind in sorted({*counts, *contents})
        ]
        faults = _faults(folder, table) + table.faults(thorough=False)
        return Summary(table.about("version") or "unknown", kinds, keys, folders.size_of(folder), faults)


def verified(folder: Path, each: Callable[[], object] = lambda: None) -> Verification:
    """Read and check all entries; ``each`` is called after every one.

    Raises:
        Unusable: there is none, or its table cannot be read.
    """
    count, damaged, last = 0, list[str](), -(1 << 63)
    with _table(folder) as table:
        segments, faults = Segments(folder / folders.SEGMENTS), _faults(folder, table) + table.faults()
        while rows := table.rows_after(last):
            for last, row in rows:
                count += 1
                if (fault := _fault(last, row, segments)) is not None and (last, row) in table.rows_of([last]):
                    damaged.append(f"{NAMES.get(last % KINDS, last % KINDS)}, entry {last:x}: {fault}")
                each()
    return Verification(count, damaged, faults)


def _faults(folder: Path, table: Table) -> list[str]:
    found = list[str]()
    if (folder / folders.DAMAGED).exists():
        found.append("a run found it damaged: the next that finds nobody using it begins anew")
    if table.about("version") is None:
        found.append("it does not say of which version it is")
    return found


def _fault(number: int, row: object, segments: Segments) -> str | None:
    entry = unpacked(row)
    if entry is None or entry.kind != number % KINDS:
        return "its row is damaged"
    try:
        if segments.size(entry.segment) < entry.offset + entry.size:
            return f"segment {entry.segment} is too short"
    except OSError as error:
        return str(error)
    spans = [entry.span(part, part + 1) for part in range(len(entry.ends))]
    if any(end < begin for begin, end in spans):
        return "its parts are damaged"
    wrong = sum(
        not segments.read([(entry, part, part + 1)], bytearray(end - begin)) for part, (begin, end) in enumerate(spans)
    )
    return f"{wrong} of {len(spans)} parts are damaged" if wrong else None


def clear(folder: Path) -> int:
    """Empty the cache in a folder; return the bytes that it had.

    Raises:
        Unusable: there is none, or another process uses it.
        OSError: something cannot be removed.
    """
    _exists(folder)
    with folders.opening(folder):
        alone = locked(folder / folders.IN_USE, exclusive=True)
        if alone is None:
            raise Unusable(f"processes use it: {folder}")
        try:
            size = folders.size_of(folder)
            folders.empty(folder)
        finally:
            os.close(alone)
    return size


def _exists(folder: Path) -> None:
    if not folders.exists(folder):
        raise Unusable(f"there is no cache: {folder}")


@contextmanager
def _table(folder: Path) -> Iterator[Table]:
    _exists(folder)
    if not (folder / folders.TABLE).is_file():
        raise Unusable(f"the cache is empty: {folder}")
    table = Table(folder / folders.TABLE, writable=os.access(folder, os.W_OK))
    try:
        yield table
    except (sqlite3.Error, OSError) as error:
        raise Unusable(f"its table cannot be read: {error}: {folder}") from error
    finally:
        table.close()
