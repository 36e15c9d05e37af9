"""Copies and launches of a whole batch, one call of the driver's for each and none of Python's: what ``device`` has
compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from accel.codec.jpeg.memory import advanced, pointer_to
from accel.native.intrinsics import emitted

_WORD, _INT = ir.IntType(64), ir.IntType(32)
_POINTER = ir.IntType(8).as_pointer()
_NONE = np.int32(0)


@emitted(types.int32, types.uint64, types.uint64, types.uint64, types.int64, types.uint64, None)
def _launch(builder: Any, driver: Any, kernel: Any, blocks: Any, threads: Any, stream: Any, arguments: Any) -> Any:
    """Call the driver's ``cuLaunchKernel``; behind the two ``arguments`` there is room for the addresses of both."""
    kind = ir.FunctionType(_INT, [_POINTER, *[_INT] * 7, _POINTER, _POINTER, _POINTER])
    one, none = ir.Constant(_INT, 1), ir.Constant(_POINTER, None)
    for n in range(2):
        address = builder.ptrtoint(builder.gep(arguments, [ir.Constant(_INT, n)]), _WORD)
        builder.store(address, builder.gep(arguments, [ir.Constant(_INT, 2 + n)]))
    given = builder.bitcast(builder.gep(arguments, [ir.Constant(_INT, 2)]), _POINTER)
    return builder.call(
        builder.inttoptr(driver, kind.as_pointer()),
        [
            builder.inttoptr(kernel, _POINTER),
            *(builder.trunc(blocks, _INT), one, one),
            *(builder.trunc(threads, _INT), one, one),
            ir.Constant(_INT, 0),
            builder.inttoptr(stream, _POINTER),
            given,
            none,
        ],
    )


@emitted(types.int32, types.uint64, types.uint64, types.uint64, types.uint64, types.uint64)
def _move(builder: Any, driver: Any, target: Any, source: Any, size: Any, stream: Any) -> Any:
    """Call one of the driver's functions that copy memory, or fill it with a byte."""
    kind = ir.FunctionType(_INT, [_WORD, _WORD, _WORD, _POINTER])
    function = builder.inttoptr(driver, kind.as_pointer())
    return builder.call(function, [target, source, size, builder.inttoptr(stream, _POINTER)])


@njit
def submit_launches(
    moves: Any, behind: int, launches: Any, kernels: Any, driver: Any, stream: Any, threads: int, room: Any
) -> int:
    """Queue copies, kernels and more copies on a stream.

    Returns the number of the first of all that the driver refuses, or how many there are.

    Args:
        moves: uint64 [m, 4]: the number of one of the ``driver``'s functions, to where, from where (or which byte), and
            how many bytes; of these so many come ``behind`` the launches.
        launches: uint64 [n, 4]: the number of one of the ``kernels``, its blocks, addresses of items and of owners.
        driver: uint64 [...], addresses of functions, of ``cuLaunchKernel`` first.
        room: uint64 [5], for a moment; then the last of it is the driver's error.
    """
    place, first = pointer_to(room), len(moves) - behind
    for n in range(len(moves) + len(launches)):
        if first <= n < first + len(launches):
            k = n - first
            room[0], room[1] = launches[k, 2], launches[k, 3]
            kernel = kernels[launches[k, 0]]
            error = _launch(driver[0], kernel, launches[k, 1], threads, stream, advanced(place, 0))
        else:
            k = n if n < first else n - len(launches)
            error = _NONE
            if moves[k, 3] > 0:
                error = _move(driver[moves[k, 0]], moves[k, 1], moves[k, 2], moves[k, 3], stream)
        if error != 0:
            room[4] = error
            return n
    return len(moves) + len(launches)
