"""The horizontal pass of a resize to far fewer columns, by dot products, equal to ``pass_resize.resize_columns``.

There a tap of a column costs as much as four do here, once a column's weights are split into digits.  It works on
*quads*: four neighbouring pixels of a channel, in 16 rows, 64 bytes, row by row, so that their weighted sums are dot
products of four bytes: one instruction with AVX-512 VNNI, which takes weights of 8 bits.  A weight is therefore split
into digits, each of which has its own sum.  Without VNNI a digit has 16 bits, and two products are one instruction on
most processors.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit
from numba.core import cgutils, types

from accel.backends.cpu import pass_fields as ps
from accel.backends.cpu.pass_resize import copy_rows
from accel.backends.cpu.simd import HAS_VNNI, LANES, dots, half_of, packed, transpose16, transposed
from accel.backends.shared.coefficient_kernels import computed
from accel.backends.shared.numba_memory import pointer
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
        half, shift = half_of(builder, shift)
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
        totals = [_total(builder, [builder.load(each) for each in of_channel], shift) for of_channel in sums]
        store(builder, _clipped(builder, totals), target)

    return sum_quads


sum_quads1, sum_quads3 = _sum_quads(1), _sum_quads(3)
"""Write a pixel in 16 rows: 16 bytes a channel (64 for three). It is made of ``count`` quads, ``stride`` bytes apart.

clip8((2 ** (shift - 1) + sum(weight * byte)) >> shift), in sums that wrap at 32 bits, as in Pillow's Resample.c.
"""

_DIGIT: Any = np.int8 if DIGIT_BITS == 8 else np.int16


@njit
def pays(taps: int) -> Any:
    """Whether columns of so many taps are computed faster here."""
    return taps >= 7


@njit
def _quads_of(taps: int) -> Any:
    """The most quads over which so many neighbours may spread."""
    return (taps + 6) // 4


@njit
def tile_size(n_bytes: int, channels: int, taps: int) -> Any:
    """Bytes for 16 rows as quads, with what is written and read beyond them, and before them room for rows' ends."""
    return LANES * (n_bytes + 2 * QUAD) + _quads_of(taps) * channels * QUAD


@njit
def weights_size(taps: int, size: int) -> Any:
    """Bytes of the weights of ``size`` columns, of at most ``taps`` coefficients each."""
    return size * _quads_of(taps) * QUAD_WEIGHTS


@njit
def _leftmost(bounds: Any, i: int, first: int, step: int) -> Any:
    """The leftmost column of the image that column i is computed from."""
    return first + step * (bounds[i, 0] if step > 0 else bounds[i, 0] + bounds[i, 1] - 1)


@njit
def weigh(bounds: Any, coefficients: Any, first: int, step: int, memory: int) -> Any:
    """Write the weights, ``weights_size`` bytes; returns the quads of a column, 0 if a coefficient is too large.

    A column's quads are in the image's order. All have as many, so that the loop's end is predicted.
    """
    most, fits = np.int32(0), np.int64(0)
    for i in range(bounds.shape[0]):
        most = max(most, bounds[i, 1])
    count = _quads_of(np.int64(most))
    digits = carray(pointer(memory), (bounds.shape[0] * count * DIGITS * 4,), _DIGIT)
    digits[:] = 0
    for i in range(bounds.shape[0]):
        phase, taps = _leftmost(bounds, i, first, step) & 3, np.int64(bounds[i, 1])
        for t in range(taps):
            place = phase + (t if step > 0 else taps - 1 - t)
            at = (i * count + (place >> 2)) * DIGITS * 4 + (place & 3)
            rest = np.int64(coefficients[i, t])
            for digit in range(DIGITS):
                lowest = np.int64(_DIGIT(rest))
                digits[np.uint64(at + 4 * digit)] = lowest
                rest = (rest - lowest) >> DIGIT_BITS
            fits |= rest
    return count if fits == 0 else 0


@njit
def _turn_rows(source: int, stride: int, channels: int, target: int) -> None:
    if channels == 3:
        turn3(source, stride, target)
    elif channels == 1:
        turn1(source, stride, target)
    else:
        turn4(source, stride, target)


@njit
def shrink_columns(state: Any, source: int, stride: int, n_rows: int, target: int) -> None:
    """``pass_resize.resize_columns`` by COUNT quads a column, the result of ``weigh``, which filled WEIGHTS.

    TILE and SUMS: workspaces of ``tile_size`` and ``16 * (padded(columns * channels) + 1)`` bytes.
    """
    bounds, _ = computed(state[ps.COL_MEMORY], state[ps.COL_MOST], state[ps.SHOWN_COLS])
    first, step, channels, shift = state[ps.FIRST], state[ps.STEP], state[ps.CHANNELS], state[ps.COL_SHIFT]
    n_bytes, width, sums, count = state[ps.WIDTH], state[ps.MIDDLE_WIDTH], state[ps.SUMS], state[ps.COUNT]
    columns, room = bounds.shape[0], count * QUAD_WEIGHTS
    at_once = QUAD // (4 * channels) * 4 * channels  # bytes of each row
    spare, quads, pitch = state[ps.TILE], state[ps.TILE] + LANES * QUAD, channels * QUAD
    for y in range(0, n_rows, LANES):
        row = min(y, n_rows - LANES)  # the last tile overlaps the one before
        here = source + row * stride
        last = max(here, here + (LANES - 1) * stride)
        for x in range(0, n_bytes, at_once):
            if last + x + QUAD <= state[ps.BEYOND]:
                _turn_rows(here + x, stride, channels, quads + LANES * x)
            else:
                copy_rows(here + x, stride, LANES, min(n_bytes - x, at_once), spare, QUAD)
                _turn_rows(spare, QUAD, channels, quads + LANES * x)
        for i in range(columns):
            begin = quads + _leftmost(bounds, i, first, step) // 4 * pitch
            weight, total = state[ps.WEIGHTS] + i * room, sums + i * LANES * channels
            if channels == 3:
                sum_quads3(begin, pitch, weight, count, shift, total)
            else:
                for c in range(channels):
                    sum_quads1(begin + c * QUAD, pitch, weight, count, shift, total + c * LANES)
        for x in range(0, columns * channels, LANES):
            transpose16(sums + x * LANES, LANES, target + row * width + x, width)
