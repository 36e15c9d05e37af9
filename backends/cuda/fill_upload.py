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
_UPLOAD = 1  # the region of what is sent behind the files
_LAUNCHES, _PIECES, _PROGRAM, _FIXUPS = 1, 2, 3, 4  # of the parts


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
    pieces: int,
    behind: int,
    bases: Any,
    upload: Any,
    words: Any,
    launches: Any,
) -> int:
    """Copy pieces of files, and a program behind them, whose places become addresses, and say what is launched.

    Args:
        files: pieces are of these. slot: all that was sent; ``halves``: the same, in words of 32 bits.
        parts: from this word on it says where each part (``finished.Part``) begins, and how many bytes it has.
        pieces: how many are copied: from where, to where, how many bytes.
        behind: where in ``upload`` the program is to be.
        bases: the addresses of regions. upload: what is filled; ``words``: the same.
        launches: of each the kernel, its blocks, and the addresses of its items and owners.
    """
    source, target, memory = pointer_to(files), pointer_to(upload), pointer_to(slot)
    first = slot[parts + 2 * _PIECES] // 8
    for n in range(first, first + 3 * pieces, 3):
        copied(advanced(target, slot[n + 1]), advanced(source, slot[n]), slot[n + 2])
    part = parts + 2 * _PROGRAM
    copied(advanced(target, behind), advanced(memory, slot[part] // 8), slot[part + 1])
    part = parts + 2 * _FIXUPS
    bind_words(words, halves, slot[part] // 4, slot[part + 1] // 4, bases, behind // 8)
    first, program = slot[parts + 2 * _LAUNCHES] // 8, bases[_UPLOAD]
    for n in range(len(launches)):
        for k in range(4):
            launches[n, k] = np.uint64(slot[first + 4 * n + k])
        launches[n, 2] += program
        launches[n, 3] += program
    return 0
