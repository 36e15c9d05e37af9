"""What is sent to the device of a batch that a worker has computed ahead: what ``ready`` has compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.core import cgutils

from accel.codec.jpeg.memory import advanced, pointer_to
from accel.native.intrinsics import emitted

_SHIFT = np.uint64(56)  # of the region in a place, see descriptors.py
_OFFSET = np.uint64((1 << 56) - 1)
_UPLOAD, _SCRATCH, _RESULT, _FILES = 1, 2, 3, 4  # of the regions
_LAUNCHES, _PIECES, _PROGRAM, _FIXUPS = 1, 2, 3, 4  # of the parts
_BEHIND, _WORKING, _CLEARED, _CLEARED_END, _TOLD, _TOLD_SIZE = 1, 3, 5, 6, 7, 8  # of the numbers (``finished.Said``)
_TO_DEVICE, _FILL, _TO_HOST = 1, 2, 3  # of the driver's (``driver.Call``)


@emitted(types.void, None, None, types.int64)
def copied(builder: Any, target: Any, source: Any, size: Any) -> None:
    """Copy bytes, which do not overlap."""
    cgutils.raw_memcpy(builder, target, source, size, 1)


@njit
def bind_words(words: Any, fixups: Any, begin: int, count: int, bases: Any, first: int) -> int:
    """Have places, so many from ``fixups[begin]`` on, behind the word ``first``, become addresses: ``bases`` are those
    of their regions."""
    for n in range(begin, begin + count):
        where = first + fixups[n]
        words[where] = (words[where] & _OFFSET) + bases[words[where] >> _SHIFT]
    return 0


@njit
def fill_upload(
    files: Any,
    slot: Any,
    halves: Any,
    parts: int,
    in_place: int,
    memory: int,
    result: int,
    host: Any,
    words: Any,
    first: int,
    bases: Any,
    work: Any,
) -> int:
    """Copy pieces of files, and a program behind them, whose places become addresses, and say what the device is to do.

    Args:
        files: pieces are of these. slot: all that was sent; ``halves``: the same, in words of 32 bits.
        parts: from this word on it says where each part (``finished.Part``) begins, and how many bytes it has.
        in_place: whether the device copies the files from where they are. memory, result: addresses of its own.
        host: what is told comes there, and what is sent is filled in from ``first`` on; ``words``: the same.
        bases: of regions, for a moment.
        work: ``device.Work``: 4 moves, and launches behind them. It has addresses of ``files`` and ``host``.
    """
    source, target, sent = pointer_to(files), pointer_to(host), pointer_to(slot)
    said, part = slot[parts] // 8, parts + 2 * _PROGRAM
    behind, size = slot[said + _BEHIND], slot[part + 1]
    bases[0], bases[_FILES], bases[_UPLOAD], bases[_RESULT] = 0, memory, memory + behind, result
    bases[_SCRATCH] = scratch = memory + slot[said + _WORKING]
    begin, at = slot[parts + 2 * _PIECES] // 8, first
    if not in_place:
        for n in range(begin, begin + slot[parts + 2 * _PIECES + 1] // 8, 3):
            copied(advanced(target, first + slot[n + 1]), advanced(source, slot[n]), slot[n + 2])
        at += behind
    copied(advanced(target, at), advanced(sent, slot[part] // 8), size)
    part = parts + 2 * _FIXUPS
    bind_words(words, halves, slot[part] // 4, slot[part + 1] // 4, bases, at // 8)
    _move(work, 0, _TO_DEVICE, memory, files.ctypes.data, slot[said] * in_place)
    staged = at - first  # bytes of files
    _move(work, 1, _TO_DEVICE, memory + behind - staged, host.ctypes.data + first, staged + size)
    _move(work, 2, _FILL, scratch + slot[said + _CLEARED], 0, slot[said + _CLEARED_END] - slot[said + _CLEARED])
    _move(work, 3, _TO_HOST, host.ctypes.data, scratch + slot[said + _TOLD], slot[said + _TOLD_SIZE])
    begin = slot[parts + 2 * _LAUNCHES] // 8
    for n in range(len(work) - 4):
        for k in range(4):
            work[4 + n, k] = np.uint64(slot[begin + 4 * n + k])
        work[4 + n, 2] += bases[_UPLOAD]
        work[4 + n, 3] += bases[_UPLOAD]
    return 0


@njit
def _move(work: Any, n: int, call: int, target: int, source: int, size: int) -> None:
    work[n, 0], work[n, 1], work[n, 2], work[n, 3] = call, target, source, size
