"""Vector primitives of the horizontal pass, which works on *quads*: four neighbouring pixels of a channel, in 16 rows.

A quad is 64 bytes, row by row, so that its weighted sums are dot products of four bytes: one instruction where there is
AVX-512 VNNI.  That takes weights of 8 bits.  A weight is therefore taken apart into digits, each of which has a sum of
its own.  Without VNNI a digit has 16 bits, and two products are one instruction on most processors.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from accel.backends.cpu.simd import LANES
from accel.codec.jpeg.simd import Lanes
from accel.native.intrinsics import FEATURES, emitted, lanes_of, load, splat, store

HAS_VNNI = "+avx512vnni" in FEATURES and "+avx512bw" in FEATURES

QUAD = 4 * LANES
DIGIT_BITS, DIGITS = (8, 3) if HAS_VNNI else (16, 2)
"""Of a weight, each signed."""
QUAD_WEIGHTS = DIGITS * DIGIT_BITS // 2
"""The bytes of four weights: their lowest digits, then the next ones."""

_BYTE, _WORD = ir.IntType(8), ir.IntType(32)
_BYTES, _SUMS = ir.VectorType(_BYTE, QUAD), ir.VectorType(_WORD, LANES)


def _offset(builder: Any, address: Any, count: Any) -> Any:
    return builder.add(address, ir.Constant(address.type, count) if isinstance(count, int) else count)


def _interleaved(builder: Any, rows: Sequence[Any]) -> Sequence[Any]:
    """16 vectors of 16 lanes with rows and columns exchanged, as ``simd.transpose16`` does it."""
    low = lanes_of([i // 2 + LANES * (i % 2) for i in range(LANES)])
    high = lanes_of([LANES // 2 + i // 2 + LANES * (i % 2) for i in range(LANES)])
    for _ in range(4):
        pairs = zip(rows[: LANES // 2], rows[LANES // 2 :], strict=True)
        rows = [builder.shuffle_vector(a, b, half) for a, b in pairs for half in (low, high)]
    return rows


def _turn(channels: int) -> Any:
    groups = QUAD // (4 * channels)
    order = [(4 * group + x) * channels + c for group in range(groups) for c in range(channels) for x in range(4)]
    order += [0] * (QUAD - len(order))

    @emitted(types.void, *[types.int64] * 3)
    def turn(builder: Any, source: Any, stride: Any, target: Any) -> None:
        rows = []
        for _ in range(LANES):
            row = load(builder, source, _BYTES)
            spread = builder.shuffle_vector(row, row, lanes_of(order))
            rows.append(builder.bitcast(spread, _SUMS))
            source = builder.add(source, stride)
        for i, quad in enumerate(_interleaved(builder, rows)[: groups * channels]):
            store(builder, quad, _offset(builder, target, QUAD * i))

    return turn


turn1, turn3, turn4 = _turn(1), _turn(3), _turn(4)
"""Write the whole quads in 64 bytes of 16 rows, ``stride`` bytes apart: of all channels side by side."""


def _dot_of_four(builder: Any, total: Any, values: Any, weights: Any) -> Any:
    """The sums, with the products of 64 bytes and four digits; each row has two sums where a digit has 16 bits."""
    if HAS_VNNI:
        kind = ir.FunctionType(_SUMS, [_SUMS] * 3)
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.vpdpbusd.512")
        spread = splat(builder, load(builder, weights, _WORD), LANES)
        return builder.call(function, [total, builder.bitcast(values, _SUMS), spread])
    spread = splat(builder, load(builder, weights, ir.IntType(64)), LANES)
    digits = Lanes(builder, builder.bitcast(spread, ir.VectorType(ir.IntType(16), QUAD)))
    return builder.add(total, Lanes(builder, values).widen(16).dot_lanes(digits).value)


def _total(builder: Any, digits: Sequence[Any], shift: Any) -> Any:
    """The sums of each digit as one, shifted."""
    sums = [Lanes(builder, each) for each in digits]
    if not HAS_VNNI:
        sums = [each.shuffle(range(0, 2 * LANES, 2)) + each.shuffle(range(1, 2 * LANES, 2)) for each in sums]
    total = reduce(lambda higher, lower: higher * (1 << DIGIT_BITS) + lower, reversed(sums))
    return builder.ashr(total.value, shift)


def _clipped(builder: Any, totals: Sequence[Any]) -> Any:
    """Bytes of up to four vectors of 16 sums, one behind the other, and others behind them."""
    if not HAS_VNNI or len(totals) == 1:
        parts = [Lanes(builder, total).clamp(0, 255).narrow(8) for total in totals]
        return parts[0].value if len(parts) == 1 else parts[0].join(parts[1]).join(parts[2].join(parts[-1])).value

    def packed(name: str, first: Any, second: Any, lanes: int, bits: int) -> Any:
        kind = ir.FunctionType(ir.VectorType(ir.IntType(bits), lanes), [first.type] * 2)
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.avx512.{name}.512")
        return builder.call(function, [first, second])

    low = packed("packssdw", totals[0], totals[1], 32, 16)
    high = packed("packssdw", totals[2], totals[-1], 32, 16)
    quarters = builder.bitcast(packed("packuswb", low, high, 64, 8), _SUMS)
    order = lanes_of([4 * (i % 4) + i // 4 for i in range(LANES)])
    return builder.bitcast(builder.shuffle_vector(quarters, quarters, order), _BYTES)


def _sum_quads(channels: int) -> Any:
    """The weighted sums of as many quads that lie side by side; all sums are kept in registers."""

    @emitted(types.void, *[types.int64] * 6)
    def sum_quads(builder: Any, source: Any, stride: Any, weights: Any, count: Any, shift: Any, target: Any) -> None:
        kind = _SUMS if HAS_VNNI else ir.VectorType(_WORD, 2 * LANES)
        sums = [[cgutils.alloca_once(builder, kind) for _ in range(DIGITS)] for _ in range(channels)]
        shift = builder.trunc(shift, _WORD)
        one = ir.Constant(_WORD, 1)
        half = splat(builder, builder.shl(one, builder.sub(shift, one)), LANES)
        if not HAS_VNNI:  # a row has two sums, of which one begins with it
            none = ir.Constant(_SUMS, None)
            half = builder.shuffle_vector(half, none, lanes_of([i // 2 + LANES * (i % 2) for i in range(2 * LANES)]))
        for of_channel in sums:
            for i, each in enumerate(of_channel):
                builder.store(half if i == 0 else ir.Constant(kind, None), each)
        with cgutils.for_range(builder, count) as loop:
            place = builder.add(weights, builder.mul(loop.index, ir.Constant(weights.type, QUAD_WEIGHTS)))
            quads = builder.add(source, builder.mul(loop.index, stride))
            for c, of_channel in enumerate(sums):
                values = load(builder, _offset(builder, quads, c * QUAD), _BYTES)
                for i, each in enumerate(of_channel):
                    digits = _offset(builder, place, i * DIGIT_BITS // 2)
                    builder.store(_dot_of_four(builder, builder.load(each), values, digits), each)
        shift = splat(builder, shift, LANES)
        totals = [_total(builder, [builder.load(each) for each in of_channel], shift) for of_channel in sums]
        store(builder, _clipped(builder, totals), target)

    return sum_quads


sum_quads1, sum_quads3 = _sum_quads(1), _sum_quads(3)
"""Write 16 bytes of each channel, of three 64 in all: a pixel in 16 rows, of ``count`` quads ``stride`` bytes apart.

clip8((2 ** (shift - 1) + sum(weight * byte)) >> shift), in sums that wrap at 32 bits, as in Pillow's Resample.c.
"""
