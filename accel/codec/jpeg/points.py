"""The points of a stream index (index_fields.py): reading, comparing and noting them."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from accel.native.intrinsics import emitted, splat

from . import header_fields as hd
from . import index_fields as ix
from .digest import checksum, digest
from .header import mcus, parse
from .memory import advanced, i64, pointer_to, step, u64
from .scratch import AT_ONCE, TRAIL
from .simd import WORD, load


@njit
def _put(index: Any, at: int, count: int, value: Any) -> None:
    """Write a number as `count` words."""
    for i in range(count):
        index[at + i] = np.uint16(u64(value) >> u64(16 * i))


@njit
def _get(index: Any, at: int, count: int) -> Any:
    """Read a number of `count` words, as uint64."""
    value = u64(0)
    for i in range(count):
        value |= u64(index[at + i]) << u64(16 * i)
    return value


@njit
def points_of(rows: Any, header: Any) -> Any:
    """The number of points in the first `rows` rows of MCUs."""
    columns, _ = mcus(header)
    return -(-(rows * columns) // header[hd.SPACING])


@njit
def _checksum(index: Any, rows: Any, header: Any) -> Any:
    point = ix.POINT + header[hd.COMPONENTS]
    total = checksum(index, 0, ix.CHECKSUM, u64(0))
    return checksum(index, ix.POINTS, ix.POINTS + point * points_of(rows, header), total)


@njit
def known_rows(header: Any, index: Any, own: Any) -> int:
    """The number of known rows of MCUs in an index (uint16[n]) of the file with the digest `own`.

    0: it is empty; -1: it is damaged, or another file's.
    """
    if len(index) != header[hd.INDEX_BYTES] >> 1 or len(index) == 0:
        return -1
    if index[ix.KIND] == 0:
        return 0
    rows = i64(index[ix.ROWS])
    if index[ix.KIND] != ix.MAGIC or index[ix.SPACING] != header[hd.SPACING] or rows < 1 or rows > mcus(header)[1]:
        return -1
    if _get(index, ix.CHECKSUM, 4) != _checksum(index, rows, header):
        return -1
    return rows if _get(index, ix.DIGEST, 4) == own else -1


@njit
def known_points(data: Any, header: Any, index: Any, sums: Any) -> int:
    """The number of points that an index has of a file, given the file's bytes only; 0 if it does not fit."""
    if not parse(data, header):
        return 0
    rows = known_rows(header, index, digest(data, sums))
    return points_of(rows, header) if rows > 0 else 0


@njit
def seal(header: Any, index: Any, own: Any, rows: Any, end: Any) -> None:
    """Make an index valid: for the file with the digest `own`, with the points of the first `rows` rows, which end at
    the bit `end`."""
    index[ix.KIND], index[ix.SPACING], index[ix.ROWS] = ix.MAGIC, header[hd.SPACING], rows
    _put(index, ix.DIGEST, 4, own)
    _put(index, ix.END, 2, end)
    _put(index, ix.CHECKSUM, 4, _checksum(index, rows, header))


@njit
def bit_of(index: Any, number: int, points: int, header: Any) -> Any:
    """The bit of the file at a point; for points beyond the known ones, the bit at which the known rows end."""
    if number >= points:
        return i64(_get(index, ix.END, 2))
    return i64(_get(index, ix.POINTS + (ix.POINT + header[hd.COMPONENTS]) * number, 2))


@njit
def take(index: Any, number: int, header: Any, predictions: Any) -> None:
    """Copy the DC coefficients at a point to `predictions`, int64[3]."""
    at = ix.POINTS + (ix.POINT + header[hd.COMPONENTS]) * number + ix.POINT
    for c in range(header[hd.COMPONENTS]):
        predictions[c] = np.int16(index[at + c])


@emitted(types.int64, None, types.int64)
def _before(builder: ir.IRBuilder, stuffed: Any, place: Any) -> Any:
    """How many of the next AT_ONCE places are before `place`, up to the first that is not; without a branch."""
    places = load(builder, step(builder, stuffed, 0), AT_ONCE, 32)
    limit = splat(builder, builder.trunc(place, ir.IntType(32)), AT_ONCE)
    beyond = builder.bitcast(builder.icmp_unsigned(">=", places.value, limit), ir.IntType(AT_ONCE))
    ended = builder.or_(builder.zext(beyond, WORD), ir.Constant(WORD, 1 << AT_ONCE))
    return builder.cttz(ended, ir.Constant(ir.IntType(1), 1))


@njit(forceinline=True)
def bit_in_file(bit: Any, base: Any, stuffed: Any, counted: Any) -> Any:
    """The bit of the file for a bit of the stream, and the number of stuffed zeros before it, at least `counted`.

    `base`: the byte of the file at which the stream begins, plus the bytes of the markers in between.
    """
    more = _before(advanced(stuffed, counted), bit >> 3)
    while more == AT_ONCE:
        counted += more
        more = _before(advanced(stuffed, counted), bit >> 3)
    counted += more
    return 8 * (base + counted) + bit, counted


@njit
def follow(
    index: Any, number: Any, count: Any, points: Any, components: Any, trail: Any, base: Any, stuffed: Any, counted: Any
) -> Any:
    """Compare a trail (walk.py) with the points from `number` on, and note those that are not known yet.

    Returns the number of stuffed zeros up to there; -1: a point differs.
    """
    point = advanced(pointer_to(index), ix.POINTS + (ix.POINT + components) * number)
    zeros = pointer_to(stuffed)
    for i in range(count):
        bit, counted = bit_in_file(trail[0], base, zeros, counted)
        if number + i >= points:
            point[0], point[1] = np.uint16(bit), np.uint16(u64(bit) >> u64(16))
            for c in range(components):
                point[ix.POINT + c] = np.uint16(trail[1 + c])
        else:
            same = bit == i64(point[0]) | i64(point[1]) << 16
            for c in range(components):
                same &= trail[1 + c] == np.int16(point[ix.POINT + c])
            if not same:
                return i64(-1)
        point, trail = advanced(point, ix.POINT + components), advanced(trail, TRAIL)
    return i64(counted)
