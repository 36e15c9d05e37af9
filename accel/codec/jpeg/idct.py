"""The inverse DCT of one block: libjpeg-turbo's "islow" (jidctint.c, after Loeffler, Ligtenberg and Moschytz), exact.

Integer sums and products commute, so any arrangement of the same constants between the two roundings (after the
columns and after the rows) gives libjpeg's samples, as long as nothing overflows.  Here each of the two passes is a
few dot products of pairs of 16-bit numbers, which is one instruction on most processors (pmaddwd).

libjpeg-turbo's SIMD code keeps 16 bits between the passes: a block that could leave them is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types

from accel.system.native.intrinsics import emitted
from accel.system.native.memory import step
from accel.system.native.simd import Lanes, load, sum_of

from .scratch import CONSTANT_BITS, IDCT_BIASES, IDCT_EVEN, IDCT_ODD, IDCT_PAIRS, PASS1_BITS

# scratch.PAIRS describes how a block lies in memory.
# |output of the column pass| <= 4 * sqrt(2) * cos(pi / 16) * (sum of the column's magnitudes) + 1, and the row pass of
# jidctint-*.asm adds two of them four columns apart: below this sum for both columns together that stays below 2**15.
SAFE_SUM = 5900
MAX_QUANT = 8191  # keeps the check itself within 32 bits

LOW = 10  # coefficients before this zigzag index are all in the first four rows and columns of the block


def _pass(pairs: Sequence[Lanes], tables: Any, bias: int, shift: int) -> list[Lanes]:
    """One-dimensional inverse DCTs, one per lane: eight lines of (sum + bias) >> shift from PAIRS, or its first two.

    `tables`: scratch.idct_tables(), whose loads become operands of the instructions that use them.
    """
    builder, count = pairs[0].builder, pairs[0].value.type.count

    def dot(pair: Lanes, factors: tuple[int, int]) -> Lanes:
        return pair.dot_lanes(load(builder, step(builder, tables, 32 * IDCT_PAIRS.index(factors)), count, 16))

    even, odd = (
        [[dot(pair, factors) for pair, factors in zip(pairs[part::2], line, strict=False)] for line in table]
        for part, table in enumerate((IDCT_EVEN, IDCT_ODD))
    )
    place = 32 * (len(IDCT_PAIRS) + IDCT_BIASES.index(bias))
    rounding = load(builder, step(builder, tables, place), count // 2, 32)
    sums = [(sum_of([rounding, *even[i]]), sum_of(odd[i])) for i in range(4)]
    lines = [first + second for first, second in sums] + [first - second for first, second in reversed(sums)]
    return [line >> shift for line in lines]


def _turn(lines: Sequence[Lanes]) -> list[Lanes]:
    """Eight rows, 32 bits a lane, columns in PAIRS' sequence -> four pairs of columns, 16 bits, rows in order."""
    low, high = [0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]
    quads = []
    for i in (0, 4):
        even = lines[i].pack(lines[i + 2]).reshape(8, 32)
        odd = lines[i + 1].pack(lines[i + 3]).reshape(8, 32)
        first, second = even.shuffle(low, odd).reshape(4, 64), even.shuffle(high, odd).reshape(4, 64)
        quads.append((first.shuffle([0, 4, 2, 6], second), first.shuffle([1, 5, 3, 7], second)))
    (a, b), (c, d) = quads
    halves = ([0, 1, 4, 5], [2, 3, 6, 7])
    return [x.shuffle(half, y).reshape(16, 16) for half in halves for x, y in ((a, c), (b, d))]


def _turn_low(lines: Sequence[Lanes]) -> list[Lanes]:
    """The same for the first four columns only: two pairs."""
    halves = [line.reshape(8, 16).shuffle([0, 2, 4, 6]) for line in lines]
    twos = [halves[i].join(halves[i + 1]) for i in (0, 2, 4, 6)]
    rows = twos[0].join(twos[1]).join(twos[2].join(twos[3])).reshape(16, 32)
    return [rows.shuffle(range(i, 16, 2)).reshape(16, 16) for i in (0, 1)]


def _idct(low: bool) -> Any:
    """Make the kernel; `low`: for blocks whose coefficients end before LOW."""
    pairs, lanes = (2, 8) if low else (4, 16)

    @emitted(types.boolean, None, None, None, None, types.uint64)
    def kernel(builder: ir.IRBuilder, block: Any, quant: Any, tables: Any, target: Any, stride: Any) -> Any:
        """Write the samples of block * quant (int16[64] each, in block_order) to 8 rows at target; clear the block.

        All are pointers.  False if libjpeg-turbo's arithmetic could overflow.
        """
        rows, sums = [], []
        for i in range(pairs):
            at = step(builder, block, 32 * i)
            raw, factor = load(builder, at, lanes, 16), load(builder, step(builder, quant, 32 * i), lanes, 16)
            rows.append(raw * factor)
            sums.append(raw.magnitude().dot_lanes(factor))
            (raw * 0).store(at)
        column = sum_of(sums)
        if not low:
            column = column + column.shuffle([4, 5, 6, 7, 0, 1, 2, 3])
        safe = column.at_most(SAFE_SUM)

        shift = CONSTANT_BITS - PASS1_BITS
        columns = (_turn_low if low else _turn)(_pass(rows, tables, IDCT_BIASES[0], shift))
        shift = CONSTANT_BITS + PASS1_BITS + 3
        samples = _pass(columns, tables, IDCT_BIASES[1], shift)
        packed = [samples[i].pack(samples[i + 1]) for i in (0, 2, 4, 6)]
        left, right = packed[0].pack(packed[1]), packed[2].pack(packed[3])
        # left: columns 0 to 3, rows 0..3 each, and the same for rows 4..7; right: the next four columns
        order = [row % 4 + 16 * (row // 4) + 4 * (i % 4) + 32 * (i // 4) for row in range(8) for i in range(8)]
        square = left.shuffle(order, right).reshape(8, 64)
        for row in range(8):
            square.store_lane(row, target)
            target = step(builder, target, stride)
        return safe

    return kernel


@emitted(types.boolean, None, None, None, types.uint64)
def idct_flat(builder: ir.IRBuilder, block: Any, quant: Any, target: Any, stride: Any) -> Any:
    """The same for a block that has only its first coefficient: all samples are equal."""
    first = load(builder, block, 1, 16)
    value = first.widen(32, signed=True) * load(builder, quant, 1, 16).widen(32)
    (first * 0).store(block)
    sample = (value + (257 << 2) >> 3).clamp(0, 255).narrow(8)
    row = sample.shuffle([0] * 8).reshape(1, 64)
    for _ in range(8):
        row.store(target)
        target = step(builder, target, stride)
    return value.magnitude().at_most(SAFE_SUM)


idct_block, idct_low = _idct(low=False), _idct(low=True)
