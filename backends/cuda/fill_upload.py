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


@emitted(types.void, None, None, types.int64)
def copied(builder: Any, target: Any, source: Any, size: Any) -> None:
    """Copy bytes, which do not overlap."""
    cgutils.raw_memcpy(builder, target, source, size, 1)


@njit
def bind_words(words: Any, fixups: Any, bases: Any, first: int) -> int:
    """Have places, at ``fixups`` from the word ``first`` on, become addresses: those of their regions are ``bases``."""
    for n in range(len(fixups)):
        where = first + fixups[n]
        words[where] = (words[where] & _OFFSET) + bases[words[where] >> _SHIFT]
    return 0


@njit
def fill_upload(
    files: Any, pieces: Any, program: Any, fixups: Any, bases: Any, upload: Any, words: Any, behind: int
) -> int:
    """Copy pieces of files, and a program behind them, whose places become addresses; ``words``: those of ``upload``.

    A piece is copied from ``files`` at its first number to ``upload`` at its second; the third is its size.
    """
    source, target = pointer_to(files), pointer_to(upload)
    for n in range(len(pieces)):
        copied(advanced(target, pieces[n, 1]), advanced(source, pieces[n, 0]), pieces[n, 2])
    copied(advanced(target, behind), pointer_to(program), len(program))
    bind_words(words, fixups, bases, behind // 8)
    return 0
