"""Launches of a whole batch, one call of the driver's for each and none of Python's: what ``device`` has compiled."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types

from accel.codec.jpeg.memory import advanced, pointer_to
from accel.native.intrinsics import emitted

_WORD, _INT = ir.IntType(64), ir.IntType(32)
_POINTER = ir.IntType(8).as_pointer()


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


@njit
def submit_launches(launches: Any, kernels: Any, driver: Any, stream: Any, threads: int, arguments: Any) -> int:
    """Queue kernels on a stream; returns the number of the first one that the driver refuses, or how many there are.

    Args:
        launches: uint64 [n, 4]: the number of one of the ``kernels``, its blocks, and the addresses of items and owners.
        driver: uint64 [1], the address of ``cuLaunchKernel``. stream: uint64 [1]. arguments: uint64 [4], for a moment.
    """
    place = pointer_to(arguments)
    for n in range(len(launches)):
        arguments[0], arguments[1] = launches[n, 2], launches[n, 3]
        kernel = kernels[launches[n, 0]]
        if _launch(driver[0], kernel, launches[n, 1], threads, stream[0], advanced(place, 0)) != 0:
            return n
    return len(launches)
