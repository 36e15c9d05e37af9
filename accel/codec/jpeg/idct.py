"""The inverse DCT of one block: libjpeg-turbo's "islow" (jidctint.c, after Loeffler, Ligtenberg and Moschytz), exact.

Integer sums and products commute, so any arrangement of the same constants between the two roundings (after the
columns and after the rows) gives libjpeg's samples, as long as nothing overflows.  Here each of the two passes is a
few dot products of pairs of 16-bit numbers, which is one instruction on most processors (pmaddwd).

libjpeg-turbo's SIMD code keeps 16 bits between the passes: a block that could leave them is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .lanes import BYTE, Lanes, load
from .memory import step

CONSTANT_BITS = 13
PASS1_BITS = 2
# |output of the column pass| <= 4 * sqrt(2) * cos(pi / 16) * (sum of the column's magnitudes) + 1, and the row pass of
# jidctint-*.asm adds two of them four columns apart: below this sum for both columns together that stays below 2**15.
SAFE_SUM = 5900
MAX_QUANT = 8191  # keeps the check itself within 32 bits

# Lines of a block are taken in pairs, and so a block lies in memory: a row of PAIRS after the other, each as 8 columns,
# in the same sequence, of 2 coefficients.
PAIRS = ((0, 4), (2, 6), (1, 5), (3, 7))
_SEQUENCE = [line for pair in PAIRS for line in pair]
# What jidctint.c's constants come to for each line: even part (x2, x6), odd part (x1, x5) and (x3, x7).
_HIGH, _LOW = (10703, 4433), (4433, -10704)
_ODD = (
    ((11363, 6437), (9633, 2260)),
    ((9633, -11362), (-2259, -6436)),
    ((6437, 2261), (-11362, 9633)),
    ((2260, 9633), (-6436, -11363)),
)

_ZIGZAG = (
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28,
    35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47,
    55, 62, 63,
)  # fmt: skip


def block_order() -> np.ndarray:
    """uint8[64]: the place in a block of the coefficients, by their zigzag index (T.81 figure A.6)."""
    rows, columns = (np.array([_SEQUENCE.index(line) for line in lines]) for lines in divmod(np.array(_ZIGZAG), 8))
    return (16 * (rows // 2) + 2 * columns + rows % 2).astype(np.uint8)


def _pass(pairs: Sequence[Lanes], bias: int, shift: int) -> list[Lanes]:
    """One-dimensional inverse DCTs, one a lane: eight lines of (sum + bias) >> shift from PAIRS of lines."""
    x0_x4, x2_x6, x1_x5, x3_x7 = pairs
    one = 1 << CONSTANT_BITS
    difference = x0_x4.dot(one, -one) + bias
    total = difference + x0_x4.dot(0, 2 * one)  # LLVM would make shifts of dot(one, one)
    high, low = x2_x6.dot(*_HIGH), x2_x6.dot(*_LOW)
    even = (total + high, difference + low, difference - low, total - high)
    odd = [x1_x5.dot(*first) + x3_x7.dot(*second) for first, second in _ODD]
    lines = [even[i] + odd[i] for i in range(4)] + [even[i] - odd[i] for i in (3, 2, 1, 0)]
    return [line >> shift for line in lines]


def _pack(first: Lanes, second: Lanes) -> Lanes:
    """The low halves of 8 + 8 lanes: four of first, four of second, four of first, four of second."""
    order = [0, 2, 4, 6, 16, 18, 20, 22, 8, 10, 12, 14, 24, 26, 28, 30]
    return first.reshape(16, 16).shuffle(order, second.reshape(16, 16))


def _turn(lines: Sequence[Lanes]) -> list[Lanes]:
    """Eight rows, 32 bits a lane, columns in PAIRS' sequence -> four pairs of columns, 16 bits, rows in order."""
    low, high = [0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]
    quads = []
    for i in (0, 4):
        even = _pack(lines[i], lines[i + 2]).reshape(8, 32)
        odd = _pack(lines[i + 1], lines[i + 3]).reshape(8, 32)
        first, second = even.shuffle(low, odd).reshape(4, 64), even.shuffle(high, odd).reshape(4, 64)
        quads.append((first.shuffle([0, 4, 2, 6], second), first.shuffle([1, 5, 3, 7], second)))
    (a, b), (c, d) = quads
    halves = ([0, 1, 4, 5], [2, 3, 6, 7])
    return [x.shuffle(half, y).reshape(16, 16) for half in halves for x, y in ((a, c), (b, d))]


@intrinsic  # type: ignore[untyped-decorator]
def idct_block(typing_context: Any, block: Any, quant: Any, target: Any, stride: Any) -> Any:
    """Samples of block * quant (int16[64] each, in block_order) to 8 rows at target; the block is cleared.

    All are pointers.  False where libjpeg-turbo's arithmetic could overflow.
    """

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        block, quant, target, stride = arguments
        rows, sums = [], []
        for i in range(4):
            at = step(builder, block, 32 * i)
            raw, factor = load(builder, at, 16, 16), load(builder, step(builder, quant, 32 * i), 16, 16)
            rows.append(raw * factor)
            sums.append(raw.magnitude().dot_lanes(factor))
            (raw - raw).store(at)
        column = (sums[0] + sums[1]) + (sums[2] + sums[3])
        column = column + column.shuffle([1, 0, 3, 2, 5, 4, 7, 6])
        bad = builder.icmp_unsigned(">", column.value, column.constant(SAFE_SUM))
        safe = builder.icmp_unsigned("==", builder.bitcast(bad, BYTE), ir.Constant(BYTE, 0))

        shift = CONSTANT_BITS - PASS1_BITS
        columns = _turn(_pass(rows, 1 << (shift - 1), shift))
        shift = CONSTANT_BITS + PASS1_BITS + 3
        samples = _pass(columns, (128 << shift) + (1 << (shift - 1)), shift)
        left, right = (
            _pack(samples[i], samples[i + 1]).clamp(0, 255).join(_pack(samples[i + 2], samples[i + 3]).clamp(0, 255)).narrow(8)
            for i in (0, 4)
        )
        # left: columns 0 and 1, rows 0..3 each, the same for rows 4..7, then columns 2 and 3; right: the next four
        for row in range(8):
            first = row % 4 + 8 * (row // 4)
            order = [first, first + 4, first + 16, first + 20]
            left.shuffle(order + [32 + i for i in order], right).store(target)
            target = step(builder, target, stride)
        return safe

    return types.boolean(block, quant, target, types.uint64), generate
