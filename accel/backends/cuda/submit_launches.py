"""Compiled code of ``device``: the copies and launches of a whole batch, by one driver call each, without Python."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from accel.system.native.intrinsics import emitted
from accel.system.native.memory import advanced, pointer_to

_WORD, _INT = ir.IntType(64), ir.IntType(32)
_POINTER = ir.IntType(8).as_pointer()
_NONE = np.int32(0)


@emitted(types.int32, types.uint64, types.uint64, types.uint64, types.int64, types.uint64, None)
def _launch(builder: Any, driver: Any, kernel: Any, blocks: Any, threads: Any, stream: Any, arguments: Any) -> Any:
    """Call the driver's ``cuLaunchKernel``; behind the two ``arguments`` there must be room for their addresses."""
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
    """Call a driver's function that copies memory, or fills it with a byte."""
    kind = ir.FunctionType(_INT, [_WORD, _WORD, _WORD, _POINTER])
    function = builder.inttoptr(driver, kind.as_pointer())
    return builder.call(function, [target, source, size, builder.inttoptr(stream, _POINTER)])


@njit
def submit_launches(calls: Any, moves: int, kernels: Any, driver: Any, stream: int, threads: int) -> int:
    """Queue copies, kernels and more copies on a stream.

    Returns the position of the first one that the driver refuses, or the number of all.

    Args:
        calls: ``device.Work.calls``, with ``moves`` moves. The last row's first word is set to the driver's error.
        kernels: uint64 [...], handles. driver: uint64 [...], addresses of functions, the first ``cuLaunchKernel``'s.
    """
    room, first, launches = advanced(pointer_to(calls), 4 * len(calls) - 8), moves - 1, len(calls) - moves - 2
    for n in range(moves + launches):
        if first <= n < first + launches:
            k = n + 1
            room[0], room[1] = calls[k, 2], calls[k, 3]
            error = _launch(driver[0], kernels[calls[k, 0]], calls[k, 1], threads, stream, room)
        else:
            k = n if n < first else first
            error = _NONE
            if calls[k, 3] > 0:
                error = _move(driver[calls[k, 0]], calls[k, 1], calls[k, 2], calls[k, 3], stream)
        if error != 0:
            room[4] = error
            return n
    return moves + launches
