"""Resampling of columns row by row, on processors that multiply bytes four at a time (AVX-512 with VBMI and VNNI).

Sixteen bytes of a resampled row are a *group*.  Four taps of each are fetched by one instruction, from 64 neighbouring
bytes of the row, and multiplied by the digits of their coefficients: three of base 256, each from -128 to 127.  The
sums of products for each digit, shifted and added, equal those of `pass_resize` modulo 2**32.  The bytes and digits
that a group needs are determined once for all rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils

from accel.backends.cpu import pass_fields as ps
from accel.backends.cpu.simd import HAS_VNNI, LANES, dots, half_of, saturated
from accel.backends.shared.numba_memory import pointer
from accel.system.native.intrinsics import FEATURES, called, emitted, load, splat, store

HAS_DOTS = HAS_VNNI and "+avx512vbmi" in FEATURES

MOST_QUADS = 4
"""The most quadruples of taps of a group."""

_WINDOW = 4 * LANES  # neighbouring bytes from which four taps of a group are fetched
_DIGITS = 3
_QUAD = (1 + _DIGITS) * LANES  # words that describe four taps of a group: the bytes to fetch, and the digits
_TOGETHER = 4  # rows whose sums are packed together
_AT_ONCE = 8  # rows: they stay in the nearest cache while group after group reads them
_BALANCED, _EACH = 0x808080, 0x01010101

_WORD, _WORDS = ir.IntType(32), ir.VectorType(ir.IntType(32), LANES)
_BYTES = ir.VectorType(ir.IntType(8), 4 * LANES)


@njit
def groups_memory(count: int) -> Any:
    """The bytes of memory that ``resize_by_dots`` needs for rows of ``count`` resampled bytes."""
    return (count + LANES - 1) // LANES * MOST_QUADS * (4 * _QUAD + 8) if HAS_DOTS else 0


def _sums(quads: int) -> Any:
    """Compute a group of ``rows`` rows: ``target`` is its place in the first, ``plan`` its ``quads * _QUAD`` words."""

    @emitted(types.void, *[types.int64] * 8)
    def sums(
        builder: Any, plan: Any, windows: Any, source: Any, stride: Any, rows: Any, shift: Any, target: Any, pitch: Any
    ) -> None:
        def constant(value: int) -> ir.Constant:
            return ir.Constant(plan.type, value)

        def of_row(row: Any) -> Any:
            totals = [half] + [ir.Constant(_WORDS, None)] * (_DIGITS - 1)
            for place, (which, digits) in zip(places, described, strict=True):
                window = load(builder, builder.add(place, row), _BYTES)
                taps = builder.bitcast(builder.call(fetch, [window, which]), _WORDS)
                totals = [dots(builder, total, taps, each) for total, each in zip(totals, digits, strict=True)]
            value = totals[-1]
            for total in reversed(totals[:-1]):
                value = builder.add(builder.shl(value, splat(builder, ir.Constant(_WORD, 8), LANES)), total)
            return builder.ashr(value, shift)

        fetch = called(builder, "llvm.x86.avx512.permvar.qi.512", _BYTES, _BYTES, _BYTES)
        half, shift = half_of(builder, shift)
        described, places = [], []
        for quad in range(quads):
            at = builder.add(plan, constant(4 * _QUAD * quad))
            digits = [load(builder, builder.add(at, constant(_WINDOW * (1 + i))), _WORDS) for i in range(_DIGITS)]
            described.append((load(builder, at, _BYTES), digits))
            window = load(builder, builder.add(windows, constant(8 * quad)), plan.type)
            places.append(builder.add(source, window))
        last = builder.sub(rows, constant(_TOGETHER))
        with cgutils.for_range_slice(builder, constant(0), rows, constant(_TOGETHER), inc=True) as (y, _):
            first = builder.select(builder.icmp_signed("<", y, last), y, last)
            numbers = [builder.add(first, constant(i)) for i in range(_TOGETHER)]
            values = [of_row(builder.mul(number, stride)) for number in numbers]
            for number, block in zip(numbers, saturated(builder, values), strict=True):
                store(builder, block, builder.add(target, builder.mul(number, pitch)))

    return sums


_sums_1, _sums_2, _sums_3, _sums_4 = (_sums(quads) for quads in range(1, MOST_QUADS + 1))


@njit
def _find_windows(first: int, step: int, channels: int, bounds: Any, windows: Any) -> None:
    """Lower ``windows`` [groups, quads] to where the taps begin, in bytes of a row."""
    for x in range(bounds.shape[0]):
        begin, end = x * channels // LANES, (x * channels + channels - 1) // LANES
        for quad in range((bounds[x, 1] + 3) // 4):
            low = np.int64(bounds[x, 0]) + 4 * quad
            if step < 0:
                low = min(low + 3, np.int64(bounds[x, 0]) + bounds[x, 1] - 1)
            byte = (first + step * low) * channels
            windows[begin, quad] = min(windows[begin, quad], byte)
            windows[end, quad] = min(windows[end, quad], byte)


@njit
def _digits(coefficients: Any, x: int, first: int, count: int) -> Any:
    """Words of the digits of ``count`` coefficients of a column, from tap ``first`` on; and whether all of them fit."""
    low, middle, high, all_bits = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for t in range(count):
        number = np.int64(coefficients[x, first + t]) + _BALANCED
        all_bits |= number
        number ^= _BALANCED
        low |= (number & 255) << 8 * t
        middle |= (number >> 8 & 255) << 8 * t
        high |= (number >> 16 & 255) << 8 * t
    return (low, middle, high), 0 <= all_bits < 1 << 24


@njit
def _describe(first: int, step: int, channels: int, bounds: Any, coefficients: Any, windows: Any, plan: Any) -> Any:
    """Fill ``plan``; False if a group's taps are too far apart, or a coefficient has more digits."""
    fits, furthest = True, np.int64(0)
    for x in range(bounds.shape[0]):
        for quad in range(plan.shape[1]):
            taps = min(bounds[x, 1] - 4 * quad, 4)
            left, which = (first + step * (np.int64(bounds[x, 0]) + 4 * quad)) * channels, np.int64(0)
            for t in range(taps):
                which += step * channels * t << 8 * t
            digits, fit = _digits(coefficients, x, 4 * quad, taps)
            fits &= fit
            for lane in range(x * channels, (x + 1) * channels):
                words = plan[lane // LANES, quad]
                near = left + lane - x * channels - windows[lane // LANES, quad]
                if taps > 0:
                    furthest = max(furthest, near + max(step, 0) * channels * (taps - 1))
                words[0, lane % LANES] = np.int32(np.uint32(near * _EACH + which))
                for i in range(_DIGITS):
                    words[1 + i, lane % LANES] = np.int32(np.uint32(digits[i]))
    return fits and furthest < _WINDOW


@njit
def describe(n_bytes: int, first: int, step: int, channels: int, bounds: Any, coefficients: Any, memory: int) -> Any:
    """Write descriptions of groups to ``memory``; returns the quads of a group, 0 if ``resize_by_dots`` cannot be used.

    ``memory``: ``groups_memory(len(bounds) * channels)`` bytes. View column p is column ``first + step * p`` of rows of
    ``n_bytes``.
    """
    if not HAS_DOTS or n_bytes < _WINDOW:
        return 0
    most = np.int64(0)
    for x in range(bounds.shape[0]):
        most = max(most, bounds[x, 1])
    groups, quads = (bounds.shape[0] * channels + LANES - 1) // LANES, (most + 3) // 4
    if quads < 1 or quads > MOST_QUADS:
        return 0
    windows = carray(pointer(memory), (groups, quads), np.int64)
    plan = carray(pointer(memory + 8 * groups * quads), (groups, quads, 1 + _DIGITS, LANES), np.int32)
    windows[:] = n_bytes - _WINDOW
    _find_windows(first, step, channels, bounds, windows)
    return quads if _describe(first, step, channels, bounds, coefficients, windows, plan) else 0


@njit
def resize_by_dots(state: Any, source: int, stride: int, n_rows: int, target: int) -> None:
    """``pass_resize.resize_columns`` by QUADS of each group, the result of ``describe``, which filled GROUPS."""
    quads, shift, memory, pitch = state[ps.QUADS], state[ps.COL_SHIFT], state[ps.GROUPS], state[ps.MIDDLE_WIDTH]
    groups = (state[ps.SHOWN_COLS] * state[ps.CHANNELS] + LANES - 1) // LANES
    if not HAS_DOTS:  # there are no such instructions to compile to
        return
    for top in range(0, n_rows, _AT_ONCE):
        y = min(top, n_rows - _TOGETHER)
        rows = min(_AT_ONCE, n_rows - y)
        for group in range(groups):
            of_group = memory + 8 * groups * quads + 4 * _QUAD * quads * group
            own = memory + 8 * quads * group
            row, place = source + y * stride, target + y * pitch + LANES * group
            if quads == 1:
                _sums_1(of_group, own, row, stride, rows, shift, place, pitch)
            elif quads == 2:
                _sums_2(of_group, own, row, stride, rows, shift, place, pitch)
            elif quads == 3:
                _sums_3(of_group, own, row, stride, rows, shift, place, pitch)
            else:
                _sums_4(of_group, own, row, stride, rows, shift, place, pitch)
