"""Compiled code of ``ready``: filling the upload for a batch that a worker has computed ahead."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils

from accel.system.native.intrinsics import emitted
from accel.system.native.memory import advanced, pointer_to

_SHIFT = np.uint64(56)  # of the region in a place, see descriptors.py
_OFFSET = np.uint64((1 << 56) - 1)
_UPLOAD, _SCRATCH, _RESULT, _FILES = 1, 2, 3, 4  # of the regions
_LAUNCHES, _PIECES, _PROGRAM, _FIXUPS = 1, 2, 3, 4  # of ``finished.Section``
_BEHIND, _WORKING, _CLEARED, _CLEARED_END, _REPORT, _REPORT_SIZE = 1, 3, 5, 6, 7, 8  # of ``finished.Summary``
_TO_DEVICE, _FILL, _TO_HOST = 1, 2, 3  # of ``driver.Call``


@emitted(types.void, None, None, types.int64)
def copied(builder: Any, target: Any, source: Any, size: Any) -> None:
    """Copy bytes between places that do not overlap."""
    cgutils.raw_memcpy(builder, target, source, size, 1)


def _as(kind: Any) -> Any:
    """A function that casts a pointer to one to numbers of this kind."""

    @emitted(types.CPointer(kind), None)
    def pointing(builder: Any, pointer: Any) -> Any:
        return builder.bitcast(pointer, ir.IntType(kind.bitwidth).as_pointer())

    return pointing


numbers, addresses, halves = _as(types.int64), _as(types.uint64), _as(types.int32)


@njit
def bind_words(words: Any, fixups: Any, begin: int, count: int, bases: Any, first: int) -> int:
    """Turn places into addresses: those in the words ``first + fixups[n]``, for ``count`` n from ``begin`` on.
    ``bases``: the regions' addresses."""
    for n in range(begin, begin + count):
        where = first + fixups[n]
        words[where] = (words[where] & _OFFSET) + bases[words[where] >> _SHIFT]
    return 0


@njit
def fill_upload(
    slot: Any,
    files: int,
    parts: int,
    in_place: int,
    memory: int,
    result: int,
    host: Any,
    first: int,
    work: Any,
) -> int:
    """Copy pieces of files and the program, turn its places into addresses, and fill in the device's work.

    Args:
        slot: all that the worker sent. files: the offset of the files in it.
        parts: the word from which on it has each part's (``finished.Section``) offset and bytes.
        in_place: whether the device copies the files from where they are. memory, result: device addresses.
        host: the host memory: gets what the device tells at its beginning, and what is sent from ``first`` on.
        work: ``device.Work.calls``: 4 moves, launches, and room; it refers to ``slot`` and ``host`` by address.
    """
    sent, target = pointer_to(slot), pointer_to(host)
    source, sent_words, bases = advanced(sent, files), numbers(sent), advanced(pointer_to(work), 4 * len(work) - 8)
    summary, part = sent_words[parts] // 8, parts + 2 * _PROGRAM
    behind, size = sent_words[summary + _BEHIND], sent_words[part + 1]
    bases[0], bases[_FILES], bases[_UPLOAD], bases[_RESULT] = 0, memory, memory + behind, result
    bases[_SCRATCH] = scratch = memory + sent_words[summary + _WORKING]
    begin, at = sent_words[parts + 2 * _PIECES] // 8, first
    if not in_place:
        for n in range(begin, begin + sent_words[parts + 2 * _PIECES + 1] // 8, 2):
            copied(advanced(target, first + sent_words[n]), advanced(source, sent_words[n]), sent_words[n + 1])
        at += behind
    copied(advanced(target, at), advanced(sent, sent_words[part]), size)
    part = parts + 2 * _FIXUPS
    bind_words(addresses(target), halves(sent), sent_words[part] // 4, sent_words[part + 1] // 4, bases, at // 8)
    _move(work, 0, _TO_DEVICE, memory, slot.ctypes.data + files, sent_words[summary] * in_place)
    staged = at - first  # bytes of files in the host memory
    _move(work, 1, _TO_DEVICE, memory + behind - staged, host.ctypes.data + first, staged + size)
    cleared = sent_words[summary + _CLEARED]
    _move(work, 2, _FILL, scratch + cleared, 0, sent_words[summary + _CLEARED_END] - cleared)
    _move(
        work, 3, _TO_HOST, host.ctypes.data, scratch + sent_words[summary + _REPORT], sent_words[summary + _REPORT_SIZE]
    )
    begin = sent_words[parts + 2 * _LAUNCHES] // 8
    for n in range(len(work) - 6):
        for k in range(4):
            work[4 + n, k] = np.uint64(sent_words[begin + 4 * n + k])
        work[4 + n, 2] += bases[_UPLOAD]
        work[4 + n, 3] += bases[_UPLOAD]
    return 0


@njit
def _move(work: Any, n: int, call: int, target: int, source: int, size: int) -> None:
    work[n, 0], work[n, 1], work[n, 2], work[n, 3] = call, target, source, size
