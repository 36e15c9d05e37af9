"""Entries of a cache, and the table rows that describe them: packed bytes with a checksum."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate
from sys import byteorder
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from accel.codec import store
from accel.codec.jpeg import digests
from accel.system.memory import Key

INDEX, RESULT, PIXELS, PLANES = 1, 2, 3, 4
"""Kinds of entries."""

KINDS = 16
"""All kinds are below this number."""

FORMAT = 4
"""Version of all that a cache's folder has: rows, segments, digests, and what headers and ``meta`` mean."""

LARGEST, LONGEST = (1 << 32) - 1, (1 << 16) - 1
"""Limits of an entry. ``LARGEST``: its bytes. ``LONGEST``: its parts, and the bytes of its key, header or meta."""

NewEntry = tuple[Key | bytes, bytes, bytes, Sequence[int]]
"""The key, header, meta and ends of parts of an entry to put in: all but its content."""

_OF_TABLE = 64  # bytes that the table needs for a row besides the row's own

_HEAD = struct.Struct("=IIQQHHHH")  # checksum, kind, segment, offset, number of parts, sizes of key, header and meta
_CHECKED = struct.Struct("=IQQHHHH")  # the fields behind the checksum


class Entry(NamedTuple):
    """One piece of content: where it lies, and its parts, which can be read and checked one by one.

    ``numbers``: the digests of the parts with the entry's ``number``, int64, so that content under another key has
    wrong ones; then where each part ends, uint32, in bytes from ``offset``.
    """

    key: bytes
    kind: int
    segment: int
    offset: int
    header: bytes
    meta: bytes
    numbers: bytes

    @property
    def number(self) -> int:
        """The number of its row, which its key and its kind determine."""
        return place_of(self.key) + self.kind

    @property
    def digests(self) -> Sequence[int]:
        """The digests of the parts' bytes alone."""
        number = self.number
        return array("q", [each ^ number for each in memoryview(self.numbers)[: self.parts * 8].cast("q")])

    @property
    def ends(self) -> Sequence[int]:
        return memoryview(self.numbers)[self.parts * 8 :].cast("I")

    @property
    def parts(self) -> int:
        return len(self.numbers) // 12

    @property
    def charge(self) -> int:
        """The bytes of the budget that it takes."""
        return charges_of([self], [self.size])[0]

    @property
    def size(self) -> int:
        return int.from_bytes(self.numbers[-4:], byteorder)

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Where the parts ``first`` to ``last`` (excluded) begin and end, in bytes from ``offset``."""
        if first == 0 and last == self.parts:  # the most common case
            return 0, self.size
        ends = self.ends
        return (ends[first - 1] if first else 0), (ends[last - 1] if last else 0)

    def is_as(self, other: Entry) -> bool:
        """Whether two entries are equal but for where they lie."""
        return self._replace(segment=0, offset=0) == other._replace(segment=0, offset=0)


def charges_of(entries: Sequence[Entry], sizes: Sequence[int]) -> list[int]:
    """The bytes of the budget that entries take, whose contents have these sizes: these, and twice their rows, as table
    pages may be half full."""
    return [
        size + 2 * (_HEAD.size + len(numbers) + len(key) + len(header) + len(meta) + _OF_TABLE)
        for (key, _, _, _, header, meta, numbers), size in zip(entries, sizes, strict=True)
    ]


def rows_of(entries: Sequence[Entry]) -> list[int]:
    """The ``Entry.number`` of each."""
    return [place_of(key) + kind for key, kind, *_ in entries]


class File:
    """The cache's entries of one file, by kind, and the header that was put in with them.

    ``derived``: what the caller derives from these, remembered for the next look-up.
    """

    __slots__ = ("derived", "entries", "header")

    def __init__(self, header: bytes, entries: dict[int, Entry]) -> None:
        self.header, self.entries = header, entries
        self.derived: Any = None


def packed_key(key: Key | bytes) -> bytes:
    """The bytes of a key in the table, from a file's key; bytes are returned as they are."""
    return key if isinstance(key, bytes) else store.row(*key)


@lru_cache(maxsize=1024)  # called more than once as an entry is put in
def place_of(key: bytes) -> int:
    """The first of the ``KINDS`` row numbers of a key, a hash that two keys hardly ever share."""
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "little", signed=True) & -KINDS


def numbers_of(
    content: Any, ends: Sequence[Sequence[int]], rows: Sequence[int], begins: Sequence[int] | None = None
) -> list[bytes]:
    """Compute ``Entry.numbers`` for several contents in one buffer, whose parts end at ``ends``.

    ``rows``: the entries' ``Entry.number``. ``begins``: where each content begins; None if they lie side by side.
    """
    begins = [*sides(map(size_of, ends))] if begins is None else begins
    tables = [array("I", each).tobytes() for each in ends]
    counts = [*map(len, ends)]
    of_bytes = digests(content, begins[: len(ends)], counts, np.frombuffer(b"".join(tables), np.uint32))
    found = (of_bytes ^ np.repeat(np.array(rows, np.int64), counts)).tobytes()
    numbers, at = list[bytes](), 0
    for each in tables:
        numbers.append(found[at : at + 2 * len(each)] + each)
        at += 2 * len(each)
    return numbers


def entries_of(files: Sequence[NewEntry], kind: int, content: Any, begins: Sequence[int]) -> list[Entry]:
    """Make the entries of files whose contents begin at ``begins``; their segments and offsets are not set yet."""
    keys = [key if isinstance(key, bytes) else packed_key(key) for key, *_ in files]
    numbers = numbers_of(content, [each[-1] for each in files], [place_of(key) + kind for key in keys], begins)
    return [
        Entry(key, kind, 0, 0, bytes(header), bytes(meta), own)
        for key, (_, header, meta, _), own in zip(keys, files, numbers, strict=True)
    ]


def size_of(ends: Sequence[int]) -> int:
    """The bytes of a content whose parts end at ``ends``."""
    return ends[-1] if len(ends) else 0


def sides(sizes: Iterable[int], begin: int = 0) -> Iterator[int]:
    """Where contents of these sizes begin if they lie side by side from ``begin`` on, and where the last one ends."""
    return accumulate(sizes, initial=begin)


def packed(entry: Entry) -> bytes:
    return packed_at([entry], entry.segment, [entry.offset])[0]


def packed_at(entries: Sequence[Entry], segment: int, offsets: Sequence[int]) -> list[bytes]:
    """Pack entries into rows, with this segment and these offsets in place of their own."""
    rows = list[bytes]()
    for (key, kind, _, _, header, meta, numbers), offset in zip(entries, offsets, strict=True):
        head = _CHECKED.pack(kind, segment, offset, len(numbers) // 12, len(key), len(header), len(meta))
        row = b"".join((head, numbers, key, header, meta))
        rows.append(crc32(row).to_bytes(4, byteorder) + row)
    return rows


def unpacked(row: Any) -> Entry | None:
    """Unpack a row; None if it is damaged."""
    try:
        checksum, kind, segment, offset, count, *sizes = _HEAD.unpack_from(row)
        sound = crc32(memoryview(row)[4:]) == checksum
    except (struct.error, TypeError):
        return None
    numbers = _HEAD.size + 12 * count
    key = numbers + sizes[0]
    header = key + sizes[1]
    if not sound or header + sizes[2] != len(row):
        return None
    return Entry(row[numbers:key], kind, segment, offset, row[key:header], row[header:], row[_HEAD.size : numbers])
