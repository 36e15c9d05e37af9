"""Reading parts of entries and comparing them with their digests, a whole batch in one call of compiled code."""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.cache import reading_fields as rd
from accel.cache.entry import Entry, rows_of
from accel.codec.files import reader
from accel.codec.files.fields import PREAD
from accel.codec.jpeg import sound_parts
from accel.system.native import units
from accel.system.native.calls import Call

UNIT = units.Unit(
    "reading",
    "cache/reading_kernels.py",
    "cache/reading_fields.py",
    "codec/files/kernels.py",
    "codec/files/fields.py",
    "codec/header.py",
    "system/native/digest.py",
    "system/native/memory.py",
    "system/native/simd.py",
    seconds=0.5,
)
_read = UNIT.function("cache.reading_kernels", "read", rd.SIGNATURE)


Numbers = npt.NDArray[np.int64]
EntryParts = tuple[int, Entry, int, int]
"""The descriptor of a segment's file, an entry, the first part to read, and the one behind the last."""


def read(parts: Sequence[EntryParts], view: memoryview) -> int:
    """Read parts into ``view``, one behind the other; return the number of entries up to the first that is damaged.

    A file that is shorter than its table says gives fewer bytes, and no signal, as mapped memory would.
    """
    found = arguments(parts)
    if found is None:
        return _by_python(parts, view)
    return _read(_pread(), *found, np.frombuffer(view, np.uint8), _work.sums)


def arguments(parts: Sequence[EntryParts]) -> tuple[Numbers, npt.NDArray[np.uint32]] | None:
    """The arguments of the compiled function: rows (``reading_fields``), and ``Entry.numbers`` of all entries.

    None if compiled code cannot be used.
    """
    if not reader.agrees():
        return None
    rows = array("q")
    try:
        for (file, entry, first, last), number in zip(parts, rows_of([each[1] for each in parts]), strict=True):
            rows.extend((file, entry.offset, len(entry.numbers) // 12, first, last, number))
    except OverflowError:  # an offset that no file has
        return None
    numbers = b"".join([each[1].numbers for each in parts])
    return np.frombuffer(rows, np.int64).reshape(-1, rd.ROW), np.frombuffer(numbers, np.uint32)


class EntryTable(NamedTuple):
    """Entries in the form that compiled code reads.

    Attributes:
        files: the files, kept open. rows, numbers: see ``arguments``. begins: where the numbers of each entry begin.
    """

    files: Sequence[Any]
    rows: Numbers
    numbers: npt.NDArray[np.uint32]
    begins: Numbers


def together(files: Sequence[Any], entries: Sequence[Entry]) -> EntryTable | None:
    """All parts of entries, each in its segment's file; None if a file is missing or compiled code cannot be used."""
    if len(files) < len(entries):
        return None
    found = arguments([(file.descriptor, entry, 0, entry.parts) for file, entry in zip(files, entries, strict=True)])
    if found is None:
        return None
    counts = 3 * found[0][:, rd.COUNT]
    return EntryTable(files, *found, np.cumsum(counts) - counts)


def call(out: npt.NDArray[np.uint8]) -> Call:
    """The call by which compiled code reads rows made by ``arguments`` into ``out``."""
    return Call(_read, _pread(), None, None, out, _work.sums)


@cache
def _pread() -> int:
    return int(reader.calls()[PREAD])


def _by_python(parts: Sequence[EntryParts], view: memoryview) -> int:
    for number, (file, entry, first, last) in enumerate(parts):
        begin, end = entry.span(first, last)
        own, view = view[: end - begin], view[end - begin :]
        try:
            whole = _filled(file, entry.offset + begin, own)
        except (OSError, OverflowError):
            return number
        if not whole or not sound_parts(own, entry.ends, entry.digests, first, last):
            return number
    return len(parts)


def _filled(file: int, offset: int, view: memoryview) -> bool:
    while len(view):
        count = os.preadv(file, [view], offset)
        if count == 0:
            return False
        view, offset = view[count:], offset + count
    return True


class _Work(threading.local):
    def __init__(self) -> None:
        self.sums = np.empty(8, np.uint64)


_work = _Work()
