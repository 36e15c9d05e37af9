"""The points of a stream index (index_fields.py): where they are, their packed form, reading and comparing them.

A *line* is one or more whole rows of MCUs, and all lines have as many points.  Point k of a line is before its MCU
``k * (STEP + k * GROWTH) / 256`` (fields of the header): towards the line's end points are up to three times as far
apart as at its beginning, because a walk begins left of a crop, and large crops have their left edge on the left.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from accel.system.native.digest import checksum
from accel.system.native.intrinsics import emitted, splat
from accel.system.native.memory import advanced, i64, pointer_to, step, u64
from accel.system.native.simd import WORD, load

from . import header_fields as hd
from . import index_fields as ix
from .scratch import AT_ONCE, TRAIL

# -- where points are ----------------------------------------------------------------------------------------

# Bits of the difference of two DC coefficients that are quantised by 1; each doubling of the quantiser saves one.  So
# all differences of brightness fit, except that from black to white with a few quantisers, and differences of half the
# range of colours.
_LUMA, _CHROMA = 12, 11
_LEAST, _LEAST_PLACE, _MOST_PLACE = 6, 10, 20
_ROOM = 3  # two points may have so many times as many bits between them as the furthest two have on average


@njit
def mcus(header: Any) -> tuple[Any, Any]:
    """The number of columns and of rows of MCUs."""
    return -(-header[hd.WIDTH] // (8 * header[hd.H_MAX])), -(-header[hd.HEIGHT] // (8 * header[hd.V_MAX]))


@emitted(types.uint64, types.uint64)
def bit_length(builder: ir.IRBuilder, number: Any) -> Any:
    return builder.sub(ir.Constant(WORD, 64), builder.ctlz(number, ir.Constant(ir.IntType(1), 0)))


@njit
def mcu_in_line(header: Any, k: Any) -> Any:
    """The MCU of a line that its point k is before."""
    return k * (header[hd.STEP] + k * header[hd.GROWTH]) >> 8


@njit
def mcu_at(header: Any, number: Any) -> Any:
    """The MCU that a point is before."""
    line = number // header[hd.POINTS_IN_LINE]
    return line * header[hd.LINE] + mcu_in_line(header, number - line * header[hd.POINTS_IN_LINE])


@njit
def point_up_to(header: Any, mcu: Any) -> Any:
    """The last point before an MCU or an earlier one; -1 for MCU -1."""
    if mcu < 0:
        return i64(-1)
    line = mcu // header[hd.LINE]
    column = mcu - line * header[hd.LINE]
    low, high = i64(0), header[hd.POINTS_IN_LINE] - 1
    while low < high:
        middle = (low + high + 1) >> 1
        if mcu_in_line(header, middle) <= column:
            low = middle
        else:
            high = middle - 1
    return line * header[hd.POINTS_IN_LINE] + low


@njit
def group_words(header: Any, count: Any) -> Any:
    return i64(2) + header[hd.COMPONENTS] + (((count - 1) * header[hd.POINT_BITS] + 15) >> 4)


@njit
def words_of_points(header: Any, count: Any) -> Any:
    words = count // ix.GROUP * group_words(header, ix.GROUP)
    rest = count % ix.GROUP
    return words + group_words(header, rest) if rest > 0 else words


@njit
def _difference_bits(data: Any, header: Any) -> Any:
    """Set the bits that differences of DC coefficients take; returns their sum."""
    total = i64(0)
    for c in range(header[hd.COMPONENTS]):
        at = header[hd.QUANT_AT + header[hd.COMPONENT + hd.COMPONENT_FIELDS * c + hd.QUANT]]
        factor = i64(data[at + 1])
        if data[at] >> 4:
            factor = factor << 8 | i64(data[at + 2])
        bits = (_LUMA if c == 0 else _CHROMA) + 1 - i64(bit_length(u64(max(factor, 1))))
        header[hd.DC_BITS + c] = max(bits, _LEAST)
        total += header[hd.DC_BITS + c]
    return total


@njit
def lay_out_index(data: Any, header: Any, columns: Any, rows: Any) -> None:
    """Set where the index's points are, the bits that they take, and the index's size in bytes.

    It gets as many points in a line as its share of the file's bytes has room for, or as few rows to a line.
    """
    size, count = len(data), columns * rows
    most = size // ix.SHARE - ix.AROUND
    if most < 2 * (ix.POINTS + ix.SLACK) or size >= ix.MAX_BYTES:
        return
    differences = _difference_bits(data, header)
    average = 8 * (size - header[hd.SCAN]) // count + 1
    line, points = columns, min(columns, ix.MOST_IN_LINE)
    while line < count or points > 1:
        step = max((line << 7) // points, 256)
        growth = ((line << 8) - step * points) // (points * points)
        widest = line - ((points - 1) * (step + (points - 1) * growth) >> 8)
        place = min(max(i64(bit_length(u64(_ROOM * widest * average))), _LEAST_PLACE), _MOST_PLACE)
        header[hd.PLACE_BITS], header[hd.POINT_BITS] = place, place + differences
        taken = 8 * -(-(ix.POINTS + ix.SLACK + words_of_points(header, -(-count // line) * points)) // 4)
        if taken <= most:
            header[hd.LINE], header[hd.POINTS_IN_LINE] = line, points
            header[hd.STEP], header[hd.GROWTH], header[hd.INDEX_BYTES] = step, growth, taken
            return
        if points > 1:
            points = max(min(points - 1, points * most // taken), 1)
        else:
            line = max(line + columns, line * taken // most // columns * columns)


# -- packed points: both forms are described in index_fields.py ----------------------------------------------

_LAST_BIT = 0x7FFFFFFF  # that a file can have; a damaged index may name others, but never LEFT_OUT


@emitted(types.uint64, None, types.int64)
def _load(builder: ir.IRBuilder, pointer: Any, offset: Any) -> Any:
    """The eight bytes at `offset` bytes from a pointer of any type, lowest first."""
    return builder.load(step(builder, pointer, offset, WORD), align=1)


@emitted(types.void, None, types.int64, types.uint64)
def _store(builder: ir.IRBuilder, pointer: Any, offset: Any, word: Any) -> None:
    builder.store(word, step(builder, pointer, offset, WORD), align=1)


@njit(forceinline=True)
def _mask(bits: Any) -> Any:
    return (u64(1) << u64(bits)) - u64(1)


@njit
def _group(header: Any, number: Any) -> Any:
    """The word that the group of a point begins at."""
    return ix.POINTS + number // ix.GROUP * group_words(header, ix.GROUP)


@njit(forceinline=True)
def _set(point: Any, bit: Any, dc: Any, blue: Any, red: Any) -> None:
    point[0] = np.int32(bit & _LAST_BIT)
    point[1], point[2], point[3] = np.int32(dc), np.int32(blue), np.int32(red)


@njit
def unpack_points(header: Any, index: Any, first: Any, last: Any, points: Any) -> None:
    """Unpack the points from `first`, and from the beginning of its group, to before `last`."""
    components, bits, place = header[hd.COMPONENTS], header[hd.POINT_BITS], u64(header[hd.PLACE_BITS])
    whole, place_mask = _mask(bits), _mask(place)
    luma, chroma, other = u64(header[hd.DC_BITS]), u64(header[hd.DC_BITS + 1]), u64(header[hd.DC_BITS + 2])
    luma_mask, chroma_mask, other_mask = _mask(luma), _mask(chroma), _mask(other)
    zero = i64(luma_mask + u64(1)) >> 1, i64(chroma_mask + u64(1)) >> 1, i64(other_mask + u64(1)) >> 1
    source = pointer_to(index)
    number = first // ix.GROUP * ix.GROUP
    target = advanced(pointer_to(points), ix.POINT * number)
    while number < last:
        group = advanced(source, _group(header, number))
        bit = i64(group[0]) | i64(group[1]) << 16
        dc, blue, red = i64(np.int16(group[2])), i64(0), i64(0)
        if components == 3:
            blue, red = i64(np.int16(group[3])), i64(np.int16(group[4]))
        _set(target, bit, dc, blue, red)
        target = advanced(target, ix.POINT)
        packed, at = advanced(group, 2 + components), i64(0)
        for _ in range(min(ix.GROUP, last - number) - 1):
            word = (_load(packed, at >> 3) >> u64(at & 7)) & whole
            at += bits
            if word == whole:
                target[0] = ix.LEFT_OUT
            else:
                bit += i64(word & place_mask)
                word >>= place
                dc += i64(word & luma_mask) - zero[0]
                word >>= luma
                blue += i64(word & chroma_mask) - zero[1]
                red += i64(word >> chroma) - zero[2]
                _set(target, bit, dc, blue, red)
            target = advanced(target, ix.POINT)
        number += ix.GROUP


@njit(forceinline=True)
def _change(point: Any, before: Any, field: int, width: Any) -> Any:
    """By how much a DC coefficient is larger, half of the range of so many bits added; and whether it has them.

    Without bits, of a component that there is not, it is 0.
    """
    change = (i64(point[field]) - i64(before[field])) + ((i64(1) << width) >> 1)
    return u64(change), change >= 0 and change < i64(1) << width


@njit
def pack_points(header: Any, points: Any, first: Any, last: Any, index: Any) -> None:
    """Pack the points from `first` to before `last`, and mark in `points` those that are left out.

    The points of the first one's group that are before it must be unpacked.
    """
    components, bits, place = header[hd.COMPONENTS], header[hd.POINT_BITS], header[hd.PLACE_BITS]
    whole, most = _mask(bits), i64(_mask(place))
    luma, chroma, other = header[hd.DC_BITS], header[hd.DC_BITS + 1], header[hd.DC_BITS + 2]
    target, point = pointer_to(index), advanced(pointer_to(points), ix.POINT * first)
    number = first
    while number < last:
        k = number % ix.GROUP
        group, end = advanced(target, _group(header, number)), min(number - k + ix.GROUP, last)
        if k == 0:
            group[0], group[1] = np.uint16(point[0]), np.uint16(u64(point[0]) >> u64(16))
            for c in range(components):
                group[2 + c] = np.uint16(point[1 + c])
            number, point, k = number + 1, advanced(point, ix.POINT), i64(1)
        before = advanced(point, -ix.POINT)
        while before[0] == ix.LEFT_OUT:
            before = advanced(before, -ix.POINT)
        packed, at = advanced(group, 2 + components), (k - 1) * bits
        word, at, filled = _load(packed, at >> 3) & _mask(at & 7), at >> 3, at & 7
        for _ in range(number, end):
            behind = i64(point[0]) - i64(before[0])
            dc, dc_fits = _change(point, before, 1, luma)
            blue, blue_fits = _change(point, before, 2, chroma)
            red, red_fits = _change(point, before, 3, other)
            new = u64(behind) | (dc | (blue | red << u64(chroma)) << u64(luma)) << u64(place)
            if behind < most and dc_fits and blue_fits and red_fits:
                before = point
            else:
                new = whole
                point[0] = ix.LEFT_OUT
            word |= new << u64(filled)
            _store(packed, at, word)
            filled += bits
            at, word, filled = at + (filled >> 3), word >> u64(filled & -8), filled & 7
            point = advanced(point, ix.POINT)
        number = end


# -- an index, and what a walk finds of it -------------------------------------------------------------------


@njit
def points_of(rows: Any, header: Any) -> Any:
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
    if index[ix.KIND] != ix.MAGIC or index[ix.IN_LINE] != header[hd.POINTS_IN_LINE]:
        return -1
    if not 1 <= rows <= mcus(header)[1]:
        return -1
    is_sound = _load(pointer_to(index), 2 * ix.CHECKSUM) == _checksum(index, rows, header)
    is_own = _load(pointer_to(index), 2 * ix.DIGEST) == own
    return rows if is_sound and is_own else -1


@njit
def seal(header: Any, points: Any, known: Any, index: Any, own: Any, rows: Any, end: Any) -> None:
    """Make an index, which has the points of `known` rows, have those of the first `rows` rows, which end at the bit
    `end`; for the file with the digest `own`.  See ``pack_points`` for `points`."""
    pack_points(header, points, points_of(known, header), points_of(rows, header), index)
    index[ix.KIND], index[ix.IN_LINE], index[ix.ROWS] = ix.MAGIC, header[hd.POINTS_IN_LINE], rows
    _store(pointer_to(index), 2 * ix.DIGEST, own)
    _store(pointer_to(index), 2 * ix.END, u64(end))
    _store(pointer_to(index), 2 * ix.CHECKSUM, _checksum(index, rows, header))


@njit
def end_of(index: Any) -> Any:
    """The bit of the file at which the known rows end."""
    word = _load(pointer_to(index), 2 * ix.END)
    return i64(word & u64(0xFFFFFFFF))


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
    point = advanced(pointer_to(points), ix.POINT * number)
    for i in range(count):
        bit, counted = bit_in_file(trail[0], base, stuffed, counted)
        if number + i >= known:
            point[0] = np.int32(bit)
            point[1], point[2], point[3] = np.int32(trail[1]), np.int32(trail[2]), np.int32(trail[3])
        elif point[0] != ix.LEFT_OUT:
            same = bit == point[0] and trail[1] == point[1] and trail[2] == point[2] and trail[3] == point[3]
            if not same:
                return i64(-1)
        point, trail = advanced(point, ix.POINT), advanced(trail, TRAIL)
    return i64(counted)
