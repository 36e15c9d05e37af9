"""Parts of entries, read and compared with their digests: those of a whole batch in one call of compiled code."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from accel.cache.entry import Entry
from accel.codec import opening
from accel.codec.jpeg import sound_parts
from accel.native import units

UNIT = units.Unit(
    "reading",
    *("cache/reading_kernels.py", "codec/opening_kernels.py", "codec/opening_fields.py", "codec/header.py"),
    *("codec/progressive.py", "codec/jpeg/digest.py", "codec/jpeg/memory.py", "codec/jpeg/simd.py"),
    seconds=0.5,
)
_read = UNIT.function("cache.reading_kernels", "read", "int i8[2] u4[1] u1[1]w u8[1]w")


class Wanted(NamedTuple):
    """The parts first to last (excluded) of an entry, and the descriptor of its segment's file."""

    descriptor: int
    entry: Entry
    first: int
    last: int


def read(wanted: Sequence[Wanted], out: Any) -> int:
    """Read parts into a buffer of bytes, one behind the other; how many entries are sound, up to the first that is not.

    A file that is shorter than its table says gives fewer bytes, and no signal, as mapped memory would.
    """
    view = memoryview(out).cast("B")
    if not opening.agrees():
        return _by_python(wanted, view)
    rows = [(file, entry.offset, len(entry.numbers) // 12, first, last) for file, entry, first, last in wanted]
    numbers = np.frombuffer(b"".join([each.entry.numbers for each in wanted]), np.uint32)
    try:
        asked = np.array(rows, np.int64)
    except OverflowError:  # a place that no file has
        return _by_python(wanted, view)
    return _read(int(opening.calls()[2]), asked, numbers, np.frombuffer(view, np.uint8), _work.sums)


def _by_python(wanted: Sequence[Wanted], view: memoryview) -> int:
    for number, (file, entry, first, last) in enumerate(wanted):
        begin, end = entry.span(first, last)
        own, view = view[: end - begin], view[end - begin :]
        try:
            whole = _filled(file, entry.offset + begin, own)
        except (OSError, OverflowError):
            return number
        if not whole or not sound_parts(own, entry.ends, entry.digests, first, last):
            return number
    return len(wanted)


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
