"""Packing the points of a stream index, and back: both forms are described in index_fields.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from accel.system.native.intrinsics import emitted
from accel.system.native.memory import advanced, i64, pointer_to, step, u64
from accel.system.native.simd import WORD

from . import header_fields as hd
from . import index_fields as ix
from .placing import group_words

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
