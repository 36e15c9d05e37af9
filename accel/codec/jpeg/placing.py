"""Which MCUs the points of a stream index are before, how many there are, and how many bits each of them takes.

A *line* is one or more whole rows of MCUs, and all lines have as many points.  Point k of a line is before its MCU
``k * (STEP + k * GROWTH) / 256`` (fields of the header): towards the line's end points are up to three times as far
apart as at its beginning, because a walk begins left of a crop, and large crops have their left edge on the left.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from accel.system.native.memory import i64, u64

from . import header_fields as hd
from . import index_fields as ix
from .packed_block import bit_length

# Bits of the difference of two DC coefficients that are quantised by 1; each doubling of the quantiser saves one.  So
# all differences of brightness fit, except that from black to white with a few quantisers, and differences of half the
# range of colours.
_LUMA, _CHROMA = 12, 11
_LEAST, _LEAST_PLACE, _MOST_PLACE = 6, 10, 20
_ROOM = 3  # two points may have so many times as many bits between them as the furthest two have on average


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
    """The words of a group of `count` points."""
    return i64(2) + header[hd.COMPONENTS] + (((count - 1) * header[hd.POINT_BITS] + 15) >> 4)


@njit
def words_of_points(header: Any, count: Any) -> Any:
    """The words of the first `count` points."""
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
