"""Raw memory for the hot loops.

Numba counts references, with a call, whenever an array is passed to a function or sliced; per block that costs more
than the block.  Pointers are free: `p = pointer_to(array)`, then p[i] as in C, bounds unchecked.

A pointer keeps nothing alive, and numba releases an array after the last line that names it, even if pointers to it
are used further down.  So an address (`pointer_to(array)`, `array.ctypes.data`) is only taken of a parameter, which the
caller holds until the function returns, and is not returned; tests/system/test_addresses.py checks that.  Working
memory is therefore a parameter too.  All of numba's platforms are little-endian, and so is this code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from accel.system.native.intrinsics import emitted

from .simd import BYTE, WORD, load

# Numba must not mix signed and unsigned numbers (their sum would be a float); to mypy no NumPy scalar is an int.
i64: Any = np.int64
u64: Any = np.uint64


@intrinsic
def pointer_to(typing_context: Any, array: Any) -> Any:
    """A pointer to a C-contiguous array's data; the array must be a parameter of the calling function (see above)."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return types.CPointer(array.dtype)(array), generate


@intrinsic
def advanced(typing_context: Any, pointer: Any, elements: Any) -> Any:
    """The pointer moved forward by `elements`."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return builder.gep(arguments[0], [arguments[1]])

    return pointer(pointer, types.int64), generate


@njit
def u16(data: Any, at: int) -> Any:
    """The two bytes of an array from data[at] on as one big-endian number, an int64."""
    return (i64(data[at]) << 8) | i64(data[at + 1])


@emitted(types.uint64, None, types.uint64)
def load_big_endian(builder: ir.IRBuilder, pointer: Any, offset: Any) -> Any:
    """The eight bytes from pointer[offset] on as one big-endian uint64."""
    address = builder.bitcast(builder.gep(pointer, [offset]), WORD.as_pointer())
    return builder.bswap(builder.load(address, align=1))


@emitted(types.uint64, None, types.uint64)
def byte_at(builder: ir.IRBuilder, pointer: Any, offset: Any) -> Any:
    """The byte at `offset` bytes from a pointer of any type, as uint64."""
    return builder.zext(builder.load(step(builder, pointer, offset)), WORD)


@emitted(types.uint64, None, None)
def copy_and_find_ff(builder: ir.IRBuilder, source: Any, target: Any) -> Any:
    """Copy 64 bytes; returns how many precede the first 0xFF among them (64: there is none)."""
    chunk = load(builder, source, 64, 8)
    chunk.store(target)
    found = builder.icmp_unsigned("==", chunk.value, chunk.constant(0xFF))
    return builder.cttz(builder.bitcast(found, WORD), ir.Constant(ir.IntType(1), 0))


def step(builder: ir.IRBuilder, pointer: Any, count: int | Any, kind: ir.Type = BYTE) -> Any:
    """A pointer to the LLVM type `kind`, `count` bytes behind `pointer`."""
    offset = ir.Constant(WORD, count) if isinstance(count, int) else count
    return builder.bitcast(builder.gep(builder.bitcast(pointer, BYTE.as_pointer()), [offset]), kind.as_pointer())


@emitted(types.void)
def own_registers(builder: ir.IRBuilder) -> None:
    """Keep the function that calls this from being inlined, so that its loops have all registers."""
    builder.function.attributes.add("noinline")


@emitted(types.int64, None, types.int64)
def take_numbers(builder: ir.IRBuilder, counter: Any, count: Any) -> Any:
    """Add `count` to a counter atomically and return its old value: each caller gets numbers of its own."""
    return builder.atomic_rmw("add", counter, count, "monotonic")


@emitted(types.int64, None, types.uint64, types.uint64)
def take_place(builder: ir.IRBuilder, word: Any, expected: Any, new: Any) -> Any:
    """Replace the expected word atomically by a new one, which publishes all earlier writes; 0: it was another word."""
    done = builder.cmpxchg(word, expected, new, "acq_rel", "monotonic")
    return builder.zext(builder.extract_value(done, 1), WORD)
