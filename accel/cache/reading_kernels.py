"""Compiled code that reads parts of entries from segments by ``pread``, and compares them with their digests."""

from __future__ import annotations

from typing import Any

from numba import njit

from accel.cache import reading_fields as rd
from accel.codec.files.kernels import _address, _pread
from accel.system.native.digest import digest
from accel.system.native.memory import i64, pointer_to, u64


@njit
def _filled(call: int, descriptor: int, place: int, size: int, begin: int) -> bool:
    """Read ``size`` bytes of a file, from ``begin`` on, to an address; False if it has fewer, or cannot be read."""
    done = i64(0)
    while done < size:
        got = _pread(call, descriptor, place + done, size - done, begin + done)
        if got <= 0:
            return False
        done += got
    return True


@njit
def read(call: int, wanted: Any, numbers: Any, out: Any, sums: Any) -> int:
    """Read parts of entries, one behind the other; return the number of entries up to the first that is damaged.

    Args:
        call: the address of ``pread``. sums: uint64 [8], working memory.
        wanted: int64 [entries, rd.ROW].
        numbers: uint32, ``Entry.numbers`` of all entries, one behind the other.
    """
    at, known = i64(0), i64(0)
    for entry in range(len(wanted)):
        count, first, last = wanted[entry, rd.COUNT], wanted[entry, rd.BEGIN], wanted[entry, rd.END]
        ends = known + 2 * count
        if not 0 <= first <= last <= count or ends + count > len(numbers):
            return entry
        begin = i64(numbers[ends + first - 1]) if first > 0 else i64(0)
        size = i64(numbers[ends + last - 1]) - begin if last > 0 else i64(0)
        if size < 0 or size > len(out) - at:
            return entry
        place = _address(pointer_to(out)) + at
        if not _filled(call, wanted[entry, rd.DESCRIPTOR], place, size, wanted[entry, rd.OFFSET] + begin):
            return entry
        before, number = i64(0), u64(wanted[entry, rd.NUMBER])
        for part in range(first, last):
            end = i64(numbers[ends + part]) - begin
            said = u64(numbers[known + 2 * part]) | u64(numbers[known + 2 * part + 1]) << u64(32)
            if end < before or end > size or digest(out[at + before : at + end], sums) ^ number != said:
                return entry
            before = end
        at += size
        known += 3 * count
    return len(wanted)
