"""The points of a stream index (index_fields.py): reading, comparing and noting them."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from accel.system.native.digest import checksum, digest
from accel.system.native.intrinsics import emitted, splat
from accel.system.native.memory import advanced, i64, pointer_to, step, u64
from accel.system.native.simd import WORD, load

from . import header_fields as hd
from . import index_fields as ix
from .header import mcus, parse
from .packed_points import pack_points
from .placing import point_up_to, words_of_points
from .scratch import AT_ONCE, TRAIL


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
    return point_up_to(header, rows * columns - 1) + 1


@njit
def _checksum(index: Any, rows: Any, header: Any) -> Any:
    total = checksum(index, 0, ix.CHECKSUM, u64(0))
    return checksum(index, ix.POINTS, ix.POINTS + words_of_points(header, points_of(rows, header)), total)


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
    if (
        index[ix.KIND] != ix.MAGIC
        or index[ix.IN_LINE] != header[hd.POINTS_IN_LINE]
        or rows < 1
        or rows > mcus(header)[1]
    ):
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
def seal(header: Any, points: Any, known: Any, index: Any, own: Any, rows: Any, end: Any) -> None:
    """Make an index, which has the points of `known` rows, have those of the first `rows` rows, which end at the bit
    `end`; for the file with the digest `own`.  See ``pack_points`` for `points`."""
    pack_points(header, points, points_of(known, header), points_of(rows, header), index)
    index[ix.KIND], index[ix.IN_LINE], index[ix.ROWS] = ix.MAGIC, header[hd.POINTS_IN_LINE], rows
    _put(index, ix.DIGEST, 4, own)
    _put(index, ix.END, 2, end)
    _put(index, ix.CHECKSUM, 4, _checksum(index, rows, header))


@njit
def end_of(index: Any) -> Any:
    """The bit of the file at which the known rows end."""
    return i64(_get(index, ix.END, 2))


@njit
def nearest(points: Any, number: Any) -> Any:
    """The last point up to `number` that is not left out."""
    while points[ix.POINT * number] == ix.LEFT_OUT:
        number -= 1
    return number


@njit
def next_point(points: Any, number: Any, count: Any) -> Any:
    """The first point from `number` on that is not left out; `count` if all the others of `count` are."""
    while number < count and points[ix.POINT * number] == ix.LEFT_OUT:
        number += 1
    return number


@njit
def bit_of(points: Any, number: Any, count: Any, end: Any) -> Any:
    """The bit at one of the `count` points; at the point behind them `end`."""
    return i64(points[ix.POINT * number]) if number < count else i64(end)


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
def follow(points: Any, number: Any, count: Any, known: Any, trail: Any, base: Any, stuffed: Any, counted: Any) -> Any:
    """Compare a trail (walk.py) with the points from `number` on, and note those that are not `known` yet.

    Returns the number of stuffed zeros up to there; -1: a point differs.
    """
    point, zeros = advanced(pointer_to(points), ix.POINT * number), pointer_to(stuffed)
    for i in range(count):
        bit, counted = bit_in_file(trail[0], base, zeros, counted)
        if number + i >= known:
            point[0] = np.int32(bit)
            point[1], point[2], point[3] = np.int32(trail[1]), np.int32(trail[2]), np.int32(trail[3])
        elif point[0] != ix.LEFT_OUT:
            same = bit == point[0] and trail[1] == point[1] and trail[2] == point[2] and trail[3] == point[3]
            if not same:
                return i64(-1)
        point, trail = advanced(point, ix.POINT), advanced(trail, TRAIL)
    return i64(counted)
