"""Vector primitives for compiled kernels: byte transposes, weighted sums of rows, sums packed to bytes, copies.

Numba has no vector types, and LLVM does not find these shapes in scalar loops by itself, so they are
written as generic LLVM vector IR, which it lowers to AVX-512, AVX2, SSE or NEON, whichever the machine has.
Only `packed` and `dots` name instructions: LLVM's own way to store bytes is slower, and it does not find dot products.
Addresses are plain int64 numbers and need not be aligned; the caller must see to it that every byte lies inside its
buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from accel.system.native.intrinsics import FEATURES, called, emitted, lanes_of, load, splat, store
from accel.system.native.simd import Lanes

LANES = 16

_HAS_PACKS = "+avx512bw" in FEATURES
HAS_VNNI = _HAS_PACKS and "+avx512vnni" in FEATURES
"""Whether the processor has the instructions for ``dots`` and ``packed``."""

_BYTE = ir.IntType(8)
_WORD = ir.IntType(32)
_BYTES = ir.VectorType(_BYTE, LANES)
_WORDS = ir.VectorType(_WORD, LANES)


def _offset(builder: Any, address: Any, count: int, stride: Any) -> Any:
    return builder.add(address, builder.mul(stride, ir.Constant(stride.type, count)))


@emitted(types.void, *[types.int64] * 4)
def transpose16(builder: Any, source: Any, source_stride: Any, target: Any, target_stride: Any) -> None:
    """Write the transpose of a 16x16 block of bytes; the strides are those between its rows, in bytes."""
    rows = [load(builder, _offset(builder, source, i, source_stride), _BYTES) for i in range(LANES)]
    for i, row in enumerate(transposed(builder, rows)):
        store(builder, row, _offset(builder, target, i, target_stride))


def transposed(builder: Any, rows: Sequence[Any]) -> Sequence[Any]:
    """Exchange rows and columns of 16 vectors of 16 lanes.

    Interleaving the two halves of the block rotates the 8 bits of a lane's (row, column) index by one;
    after four interleavings row and column have changed places.
    """
    low = lanes_of([i // 2 + LANES * (i % 2) for i in range(LANES)])
    high = lanes_of([LANES // 2 + i // 2 + LANES * (i % 2) for i in range(LANES)])
    for _ in range(4):
        pairs = zip(rows[: LANES // 2], rows[LANES // 2 :], strict=True)
        rows = [builder.shuffle_vector(a, b, half) for a, b in pairs for half in (low, high)]
    return rows


def dots(builder: Any, sums: Any, values: Any, digits: Any) -> Any:
    """Add to each of 16 int32 sums the products of four bytes of ``values`` and four signed ones of ``digits``."""
    function = called(builder, "llvm.x86.avx512.vpdpbusd.512", *[_WORDS] * 4)
    return builder.call(function, [sums, values, digits])


def packed(builder: Any, sums: Sequence[Any]) -> Any:
    """Up to four vectors of 16 int32 as saturated bytes, four to a word; every fourth word is of the same vector."""
    shorts, quarters = ir.VectorType(ir.IntType(16), 2 * LANES), ir.VectorType(_BYTE, 4 * LANES)
    first, second, third, fourth = (*sums, *[sums[-1]] * 3)[:4]
    halves = [
        builder.call(called(builder, "llvm.x86.avx512.packssdw.512", shorts, _WORDS, _WORDS), pair)
        for pair in ((first, second), (third, fourth))
    ]
    function = called(builder, "llvm.x86.avx512.packuswb.512", quarters, shorts, shorts)
    return builder.bitcast(builder.call(function, halves), _WORDS)


def saturated(builder: Any, sums: Sequence[Any]) -> list[Any]:
    """Up to four vectors of 16 int32 as bytes, clamped to 0..255."""
    if not _HAS_PACKS:
        return [Lanes(builder, value).clamp(0, 255).narrow(8).value for value in sums]
    words = packed(builder, sums)
    parts = [builder.shuffle_vector(words, words, lanes_of([4 * x + i for x in range(4)])) for i in range(len(sums))]
    return [builder.bitcast(part, _BYTES) for part in parts]


def half_of(builder: Any, shift: Any) -> tuple[Any, Any]:
    """Half of what a shift (int64) divides by, and the shift, each as a vector of 16 words."""
    shift, one = builder.trunc(shift, _WORD), ir.Constant(_WORD, 1)
    half = builder.shl(one, builder.sub(shift, one))
    return splat(builder, half, LANES), splat(builder, shift, LANES)


def _weighted_sum(blocks: int) -> Any:
    """The weighted sum of rows of ``16 * blocks`` neighbouring bytes, with all accumulators in registers."""

    @emitted(types.void, *[types.int64] * 6)
    def weighted_sum(builder: Any, source: Any, stride: Any, weights: Any, taps: Any, shift: Any, target: Any) -> None:
        half, shift = half_of(builder, shift)
        sums = [cgutils.alloca_once(builder, _WORDS) for _ in range(blocks)]
        for total in sums:
            builder.store(half, total)
        with cgutils.for_range(builder, taps) as loop:
            row = builder.add(source, builder.mul(loop.index, stride))
            four = ir.Constant(weights.type, 4)
            weight = load(builder, builder.add(weights, builder.mul(loop.index, four)), _WORD)
            weight = splat(builder, weight, LANES)
            for i, total in enumerate(sums):
                place = builder.add(row, ir.Constant(row.type, LANES * i))
                values = builder.zext(load(builder, place, _BYTES), _WORDS)
                builder.store(builder.add(builder.load(total), builder.mul(values, weight)), total)
        shifted = [builder.ashr(builder.load(total), shift) for total in sums]
        for i, block in enumerate(saturated(builder, shifted)):
            store(builder, block, builder.add(target, ir.Constant(target.type, LANES * i)))

    return weighted_sum


@emitted(types.void, types.int64, types.int64, types.int64)
def copy_bytes(builder: Any, source: Any, target: Any, count: Any) -> None:
    """Copy ``count`` bytes; the two places do not overlap.  A constant count becomes a few instructions."""
    source, target = (builder.inttoptr(address, _BYTE.as_pointer()) for address in (source, target))
    cgutils.raw_memcpy(builder, target, source, count, 1)


# target[j] = clip8((2 ** (shift - 1) + sum(weights[t] * source[t * stride + j] for t in range(taps))) >> shift) for j
# below 16, 48 or 64: uint8 source and target, int32 weights and sums that wrap, as in Pillow's Resample.c.
weighted_sum16 = _weighted_sum(1)
weighted_sum48 = _weighted_sum(3)
weighted_sum64 = _weighted_sum(4)
