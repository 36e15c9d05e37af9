"""Raw memory for the hot loops.

Numba counts a reference, with a call, whenever an array is handed to a function or sliced; per block that costs more
than the block.  Pointers are free: `p = pointer_to(array)`, then p[i] as in C, bounds unchecked.

A pointer keeps nothing alive, and numba lets go of an array after the last line that names it, though pointers to it
are used further down.  So an address (`pointer_to(array)`, `array.ctypes.data`) is only taken of a parameter, which the
caller holds until the function returns, and is not returned; tests/system/test_addresses.py sees to it.  Working memory
is therefore a parameter too.  All of numba's platforms are little-endian, and so is this code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from accel.native.intrinsics import emitted

from .simd import BYTE, WORD, load

# Numba keeps signed and unsigned apart (their sum would be a float); mypy takes no numpy scalar for an int.
i64: Any = np.int64
u64: Any = np.uint64


@intrinsic
def pointer_to(typing_context: Any, array: Any) -> Any:
    """The data of a C-contiguous array, which must be a parameter of the function that asks (see above)."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return types.CPointer(array.dtype)(array), generate


@intrinsic
def advanced(typing_context: Any, pointer: Any, elements: Any) -> Any:
    """The pointer, `elements` further on."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return builder.gep(arguments[0], [arguments[1]])

    return pointer(pointer, types.int64), generate


@emitted(types.uint64, None, types.uint64)
def load_big_endian(builder: ir.IRBuilder, pointer: Any, offset: Any) -> Any:
    """The eight bytes from pointer[offset] on as one big-endian uint64."""
    address = builder.bitcast(builder.gep(pointer, [offset]), WORD.as_pointer())
    return builder.bswap(builder.load(address, align=1))


@emitted(types.uint64, None, types.uint64)
def byte_at(builder: ir.IRBuilder, pointer: Any, offset: Any) -> Any:
    """The byte so far behind a pointer to anything."""
    return builder.zext(builder.load(step(builder, pointer, offset)), WORD)


@emitted(types.uint64, None, None)
def copy_and_find_ff(builder: ir.IRBuilder, source: Any, target: Any) -> Any:
    """Copy 64 bytes; returns how many precede the first 0xFF among them (64: there is none)."""
    chunk = load(builder, source, 64, 8)
    chunk.store(target)
    found = builder.icmp_unsigned("==", chunk.value, chunk.constant(0xFF))
    return builder.cttz(builder.bitcast(found, WORD), ir.Constant(ir.IntType(1), 0))


def step(builder: ir.IRBuilder, pointer: Any, count: int | Any, kind: ir.Type = BYTE) -> Any:
    """A pointer to the LLVM type, `count` bytes further on than `pointer`."""
    offset = ir.Constant(WORD, count) if isinstance(count, int) else count
    return builder.bitcast(builder.gep(builder.bitcast(pointer, BYTE.as_pointer()), [offset]), kind.as_pointer())


@emitted(types.void)
def own_registers(builder: ir.IRBuilder) -> None:
    """Have the function that this stands in stay one: its loops share registers with no other's."""
    builder.function.attributes.add("noinline")


@emitted(types.int64, None, types.int64)
def take_numbers(builder: ir.IRBuilder, counter: Any, count: Any) -> Any:
    """The number that stands there, which is `count` more then: whoever asks gets others."""
    return builder.atomic_rmw("add", counter, count, "monotonic")


@emitted(types.int64, None, types.uint64, types.uint64)
def take_place(builder: ir.IRBuilder, word: Any, expected: Any, new: Any) -> Any:
    """Put a word in the place of the expected one, and with it all that was written before; 0: it was another."""
    done = builder.cmpxchg(word, expected, new, "acq_rel", "monotonic")
    return builder.zext(builder.extract_value(done, 1), WORD)
