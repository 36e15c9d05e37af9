"""Vector primitives of the horizontal pass, which works on *quads*: four neighbouring pixels of a channel, in 16 rows.

A quad is 64 bytes, row by row, so that its weighted sums are dot products of four bytes: one instruction with AVX-512
VNNI, which takes weights of 8 bits.  A weight is therefore split into digits, each of which has its own sum.  Without
VNNI a digit has 16 bits, and two products are one instruction on most processors.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from accel.backends.cpu.simd import HAS_VNNI, LANES, dots, packed, transposed
from accel.system.native.intrinsics import emitted, lanes_of, load, splat, store
from accel.system.native.simd import Lanes

QUAD = 4 * LANES
DIGIT_BITS, DIGITS = (8, 3) if HAS_VNNI else (16, 2)
"""The bits of a digit of a weight, which is signed, and the number of digits."""
QUAD_WEIGHTS = DIGITS * DIGIT_BITS // 2
"""The bytes of four weights: their lowest digits, then the next ones."""

_BYTE, _WORD = ir.IntType(8), ir.IntType(32)
_BYTES, _SUMS = ir.VectorType(_BYTE, QUAD), ir.VectorType(_WORD, LANES)


def _offset(builder: Any, address: Any, count: Any) -> Any:
    return builder.add(address, ir.Constant(address.type, count) if isinstance(count, int) else count)


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
        for i, quad in enumerate(transposed(builder, rows)[: groups * channels]):
            store(builder, quad, _offset(builder, target, QUAD * i))

    return turn


turn1, turn3, turn4 = _turn(1), _turn(3), _turn(4)
"""Write the whole quads in 64 bytes of 16 rows, ``stride`` bytes apart; quads of all channels lie side by side."""


def _dot_of_four(builder: Any, total: Any, values: Any, weights: Any) -> Any:
    """Add the products of 64 bytes and four digits to the sums; each row has two sums if a digit has 16 bits."""
    if HAS_VNNI:
        spread = splat(builder, load(builder, weights, _WORD), LANES)
        return dots(builder, total, builder.bitcast(values, _SUMS), spread)
    spread = splat(builder, load(builder, weights, ir.IntType(64)), LANES)
    digits = Lanes(builder, builder.bitcast(spread, ir.VectorType(ir.IntType(16), QUAD)))
    return builder.add(total, Lanes(builder, values).widen(16).dot_lanes(digits).value)


def _total(builder: Any, digits: Sequence[Any], shift: Any) -> Any:
    """Combine the sums of all digits, and shift."""
    sums = [Lanes(builder, each) for each in digits]
    if not HAS_VNNI:
        sums = [each.shuffle(range(0, 2 * LANES, 2)) + each.shuffle(range(1, 2 * LANES, 2)) for each in sums]
    total = reduce(lambda higher, lower: higher * (1 << DIGIT_BITS) + lower, reversed(sums))
    return builder.ashr(total.value, shift)


def _clipped(builder: Any, totals: Sequence[Any]) -> Any:
    """Up to four vectors of 16 sums clipped to bytes, one behind the other; there may be unused bytes at the end."""
    if not HAS_VNNI or len(totals) == 1:
        parts = [Lanes(builder, total).clamp(0, 255).narrow(8) for total in totals]
        return parts[0].value if len(parts) == 1 else parts[0].join(parts[1]).join(parts[2].join(parts[-1])).value
    quarters = packed(builder, totals)
    order = lanes_of([4 * (i % 4) + i // 4 for i in range(LANES)])
    return builder.bitcast(builder.shuffle_vector(quarters, quarters, order), _BYTES)


def _sum_quads(channels: int) -> Any:
    """The weighted sums of as many quads side by side as there are ``channels``; all sums are kept in registers."""

    @emitted(types.void, *[types.int64] * 6)
    def sum_quads(builder: Any, source: Any, stride: Any, weights: Any, count: Any, shift: Any, target: Any) -> None:
        kind = _SUMS if HAS_VNNI else ir.VectorType(_WORD, 2 * LANES)
        sums = [[cgutils.alloca_once(builder, kind) for _ in range(DIGITS)] for _ in range(channels)]
        shift = builder.trunc(shift, _WORD)
        one = ir.Constant(_WORD, 1)
        half = splat(builder, builder.shl(one, builder.sub(shift, one)), LANES)
        if not HAS_VNNI:  # a row has two sums, one of which begins with the half
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
"""Write a pixel in 16 rows: 16 bytes a channel (64 for three). It is made of ``count`` quads, ``stride`` bytes apart.

clip8((2 ** (shift - 1) + sum(weight * byte)) >> shift), in sums that wrap at 32 bits, as in Pillow's Resample.c.
"""
