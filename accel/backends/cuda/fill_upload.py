"""Compiled code of ``finished`` and ``execution``: filling the upload for a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils

from accel.backends.cuda.regions import OFFSET, SHIFT, Region
from accel.system.native.intrinsics import emitted
from accel.system.native.memory import advanced, pointer_to

_SHIFT, _OFFSET = np.uint64(SHIFT), np.uint64(OFFSET)
_UPLOAD, _SCRATCH, _RESULT, _FILES = map(int, (Region.UPLOAD, Region.SCRATCH, Region.RESULT, Region.FILES))
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


addresses = _as(types.uint64)


@njit
def _bind(words: Any, fixups: Any, bases: Any, first: int) -> None:
    """Turn places into addresses: those in the words ``first + fixups[n]``. ``bases``: the regions' addresses."""
    for n in range(len(fixups)):
        where = first + fixups[n]
        words[where] = (words[where] & _OFFSET) + bases[words[where] >> _SHIFT]


@njit
def fill_upload(
    files: Any,
    summary: Any,
    launches: Any,
    pieces: Any,
    program: Any,
    fixups: Any,
    where: Any,
    host: Any,
    work: Any,
) -> int:
    """Copy pieces of files and the program, turn its places into addresses, and fill in the device's work.

    Args:
        files: the memory in which they lie. summary, launches, pieces, program, fixups: see ``finished.Section``.
        where: int64 [4]: whether the device copies the files from where they are; the addresses of its memory and of
            the result; and the offset in ``host`` from which on it has what is sent.
        host: gets what the device tells at its beginning. The program may be there already.
        work: ``device.Work.calls``: 4 moves, launches, and room; it refers to ``files`` and ``host`` by address.
    """
    in_place, memory, result, first = where[0], where[1], where[2], where[3]
    source, target, bases = pointer_to(files), pointer_to(host), advanced(pointer_to(work), 4 * len(work) - 8)
    behind, size, at = summary[_BEHIND], len(program), first
    bases[0], bases[_FILES], bases[_UPLOAD], bases[_RESULT] = 0, memory, memory + behind, result
    bases[_SCRATCH] = scratch = memory + summary[_WORKING]
    if not in_place:
        for n in range(len(pieces)):
            copied(advanced(target, first + pieces[n, 0]), advanced(source, pieces[n, 0]), pieces[n, 1])
        at += behind
    if program.ctypes.data != host.ctypes.data + at:
        copied(advanced(target, at), pointer_to(program), size)
    _bind(addresses(target), fixups, bases, at // 8)
    _move(work, 0, _TO_DEVICE, memory, files.ctypes.data, summary[0] * in_place)
    staged = at - first  # bytes of files in the host memory
    _move(work, 1, _TO_DEVICE, memory + behind - staged, host.ctypes.data + first, staged + size)
    cleared = summary[_CLEARED]
    _move(work, 2, _FILL, scratch + cleared, 0, summary[_CLEARED_END] - cleared)
    _move(work, 3, _TO_HOST, host.ctypes.data, scratch + summary[_REPORT], summary[_REPORT_SIZE])
    for n in range(len(launches)):
        for k in range(4):
            work[4 + n, k] = np.uint64(launches[n, k])
        work[4 + n, 2] += bases[_UPLOAD]
        work[4 + n, 3] += bases[_UPLOAD]
    return 0


@njit
def _move(work: Any, n: int, call: int, target: int, source: int, size: int) -> None:
    work[n, 0], work[n, 1], work[n, 2], work[n, 3] = call, target, source, size
