"""What a row of the cache's table says of an entry, and the bytes that say it, with a checksum."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple
from zlib import crc32

from accel.system.memory import Key

INDEX, RESULT, PLANES = 1, 2, 3
"""Kinds of entries, the worthiest of a byte first: for a smaller one larger ones are taken back, never the reverse."""

FORMAT = 1
"""Changes with what is written: rows, segments, and the digest of a part."""

LARGEST = (1 << 32) - 1
"""The bytes that an entry may have."""

_KEY = struct.Struct("=QQQqq")
_HEAD = struct.Struct("=IQHHI")  # checksum, where the content begins, the sizes of header and meta, how many parts
_PLACE = struct.Struct("=QQ")


class Entry(NamedTuple):
    """Where one thing lies, in parts that are read and checked one by one.

    ``ends``: where each part ends, in bytes from ``offset``. ``digests``: one of each part's bytes.
    """

    key: bytes
    kind: int
    segment: int
    offset: int
    ends: Sequence[int]
    digests: Sequence[int]
    header: bytes
    meta: bytes

    @property
    def size(self) -> int:
        """All bytes of the content."""
        return self.ends[-1] if self.ends else 0

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Where the parts first to last (excluded) begin and end, in bytes from ``offset``."""
        return (self.ends[first - 1] if first else 0), (self.ends[last - 1] if last else 0)


class File(NamedTuple):
    """What is kept of a file: what whoever put it had to say of the file, and its entries by kind."""

    header: bytes
    entries: dict[int, Entry]


def packed_key(key: Key | bytes) -> bytes:
    """A key as it stands in the table: a file's, or bytes that are one already."""
    return key if isinstance(key, bytes) else _KEY.pack(*key)


def packed(entry: Entry) -> bytes:
    """The row of an entry, without what has columns of its own."""
    count = len(entry.ends)
    content = struct.pack(f"={count}I{count}q", *entry.ends, *entry.digests)
    sizes = (len(entry.header), len(entry.meta), count)
    row = _HEAD.pack(0, entry.offset, *sizes) + entry.header + entry.meta + content
    return _checksum(entry.key, entry.kind, entry.segment, row).to_bytes(4, _ORDER) + row[4:]


def unpacked(key: bytes, kind: Any, segment: Any, row: Any) -> Entry | None:
    """The entry that a row is of; None if it is damaged."""
    try:
        checksum, offset, header, meta, count = _HEAD.unpack_from(row)
        if _checksum(key, kind, segment, row) != checksum:
            return None
    except (struct.error, TypeError):
        return None
    at = _HEAD.size
    texts, ends, digests = at + header + meta, at + header + meta + 4 * count, at + header + meta + 12 * count
    if digests != len(row):
        return None
    view = memoryview(row)
    numbers = view[texts:ends].cast("I"), view[ends:].cast("q")
    return Entry(key, kind, segment, offset, *numbers, row[at : at + header], row[at + header : texts])


def ends_of(parts: Sequence[Any]) -> tuple[int, ...]:
    """Where each of these buffers ends once they lie side by side."""
    return tuple(accumulate(memoryview(part).nbytes for part in parts))


_ORDER: Any = "little" if struct.pack("=H", 1) == b"\1\0" else "big"


def _checksum(key: bytes, kind: int, segment: int, row: bytes) -> int:
    return crc32(memoryview(row)[4:], crc32(_PLACE.pack(kind, segment) + key))
