"""Decoding one sequential scan: the rows of MCUs up to the last needed one, to finished rows of pixels.

Without an index the walk begins with the first MCU.  With one (index_fields.py) it leaps, in known rows, to the point
before a row's first needed MCU, if that saves anything.  Rows that are not known yet are walked whole, so that an index
always knows whole rows, and the walk notes their points.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from accel.system.native.digest import digest
from accel.system.native.memory import advanced, i64, pointer_to, u64

from . import header_fields as hd
from . import index_fields as ix
from .blocks import fill_slots, huffman, quantisers
from .entropy import refill
from .header import mcus
from .layout import needed_mcus
from .packed_points import unpack_points
from .placing import mcu_at, mcu_in_line, point_up_to
from .points import bit_in_file, bit_of, end_of, follow, known_rows, nearest, next_point, points_of, seal
from .rows import hand_over
from .scratch import TRAIL
from .stream import unstuff
from .walk import keep, skip

GOOD, USED, GROWN, DROPPED = 1, 2, 4, 8


@njit(forceinline=True)
def _used(bits: Any, at: Any) -> Any:
    """The number of bytes of the stream that the window (see entropy.py) has begun to use."""
    return (i64(at) * 8 - i64(bits) + 7) >> 3


@njit
def _leap(header: Any, points: Any, count: Any, mcu: Any) -> Any:
    """The last of the `count` known points up to an MCU, and the MCU that it is before; (-1, -1) without any."""
    if count == 0:
        return i64(-1), i64(-1)
    number = nearest(points, min(point_up_to(header, mcu), count - 1))
    return number, mcu_at(header, number)


@njit
def _fill_gaps(header: Any, gaps: Any) -> None:
    """Write by how many MCUs each point is before the next one, from a line's first one on, and beyond its end."""
    in_line, mcu = header[hd.POINTS_IN_LINE], i64(0)
    for k in range(in_line - 1):
        following = mcu_in_line(header, k + 1)
        gaps[k], mcu = following - mcu, following
    gaps[in_line - 1] = header[hd.LINE] - mcu
    for k in range(in_line, in_line + ix.MOST_PASSED):
        gaps[k] = gaps[k - in_line]


@njit
def _ahead(
    header: Any, row: Any, known: Any, last_row: Any, columns: Any, left: Any, right: Any, points: Any, count: Any
) -> Any:
    """The first point behind the walk from `row` to its next leap; -1: the walk goes beyond the `count` known ones."""
    beyond = i64(-1)
    while row < known and row <= last_row:
        if 0 <= beyond < _leap(header, points, count, row * columns + left)[1]:
            break
        beyond = row * columns + right
        row += 1
    if row == known and row <= last_row and (beyond < 0 or beyond >= _leap(header, points, count, row * columns)[1]):
        return i64(-1)
    return point_up_to(header, beyond - 1) + 1


@njit
def _unpack(header: Any, layout: Any, index: Any, known: Any, points: Any) -> None:
    """Unpack the points of `known` rows of MCUs that a walk over the region needs."""
    columns, _ = mcus(header)
    _, _, first_row, last_row, _ = needed_mcus(header, layout)
    count = points_of(known, header)
    first = min(point_up_to(header, first_row * columns), count - 1)
    last = points_of(min(last_row + 1, known), header) + ix.GROUP  # of which one is not left out
    unpack_points(header, index, first, min(last, count), points)


@njit(error_model="numpy")
def _walk(
    data: Any, header: Any, layout: Any, top: int, left: int, points: Any, known: int, known_end: Any, tools: Any,
    slots: Any, predictions: Any, ends: Any, stuffed: Any, spare: Any, sums: Any, height: int, sink: Any, out: Any,
) -> Any:  # fmt: skip
    """Decode the region with the points (int32[n], see index_fields.py) of `known` rows of MCUs, which end at the bit
    `known_end`; those of further rows are added.  `points` is empty if none are wanted.

    Returns the number of rows that are known then, 0 if the file is damaged or odd; and the bit of the file at which
    these end.  If points are wanted, the file's digest is left in sums[0].
    """
    columns, rows = mcus(header)
    interval = header[hd.RESTART] if header[hd.RESTART] > 0 else columns * rows
    count, in_line = i64(0), i64(1)
    first_column, last_column, first_row, last_row, lag = needed_mcus(header, layout)
    finished, bottom = top, top + height
    source, planes, trail = tools[0], tools[7], tools[8]
    gaps = advanced(trail, TRAIL * ix.MOST_PASSED)
    if len(points) > 0:
        count, in_line = points_of(known, header), header[hd.POINTS_IN_LINE]
        _fill_gaps(header, gaps)
    buffer, bits, at = u64(0), u64(0), u64(0)
    mcu, following, number = i64(-1), i64(-1), i64(0)
    base, pieces, done, counted, remaining, end = i64(0), 0, 0, 0, i64(0), i64(0)
    behind = i64(0)  # where the last piece of the scan ends
    for mcu_row in range(min(first_row, known), last_row + 1):
        start = mcu_row * columns
        whole = mcu_row >= known
        leap, place = _leap(header, points, count, start if whole else start + first_column)
        if mcu < 0 or place > mcu:
            number, mcu = max(leap, i64(0)), max(place, i64(0))
            following = mcu if len(points) > 0 else i64(-1) << 40
            bit, stop = 8 * header[hd.SCAN], i64(len(data))
            predictions[:] = 0
            if count > 0:
                bit = i64(points[ix.POINT * number])
                for c in range(3):
                    predictions[c] = points[ix.POINT * number + 1 + c]
                ahead = _ahead(header, mcu_row, known, last_row, columns, first_column, last_column, points, count)
                if ahead >= 0:
                    stop = (bit_of(points, next_point(points, ahead, count), count, known_end) + 7) >> 3
            base = bit >> 3
            if base < behind - 1:  # points that go back are wrong; so only a byte that pieces share is copied twice
                return 0, 0
            behind = stop
            pieces = unstuff(
                pointer_to(data), base, stop, len(data), source, ends, stuffed, mcu // interval, header[hd.INTERVALS]
            )
            if pieces == 0:
                return 0, 0
            if count == 0 and len(points) > 0:
                digest(data, sums)  # now, while the bytes are in the caches
            done, counted, remaining, end = 0, 0, interval - mcu % interval, ends[0]
            buffer, bits, at = refill(source, u64(0), u64(0), u64(0))
            buffer <<= u64(bit & 7)
            bits -= u64(bit & 7)
        blocks = fill_slots(header, layout, mcu_row, slots)
        for part in range(3):  # the MCUs before the needed ones, the needed ones, those behind
            target = start + columns
            if part == 0 and mcu_row >= first_row:
                target = start + first_column
            elif part == 1 or not whole:
                target = start + last_column
            while mcu < target:
                if remaining == 0:
                    if _used(bits, at) != end or done + 1 == pieces:
                        return 0, 0
                    buffer, bits, at = refill(source, u64(0), u64(0), u64(end))
                    predictions[:] = 0
                    done += 1
                    remaining, end = interval, ends[done]
                column, stop = mcu - start, min(target, mcu + remaining) - start
                until, gaps_at = following - start, advanced(gaps, number % in_line)
                if part == 1:
                    buffer, bits, at, good = keep(
                        tools, buffer, bits, at, end, pointer_to(slots), blocks, column, stop, until, gaps_at
                    )
                else:
                    buffer, bits, at, good = skip(
                        tools, buffer, bits, at, end, pointer_to(slots), blocks, column, stop, until, gaps_at
                    )
                if not good:
                    return 0, 0
                remaining -= stop - column
                mcu += stop - column
                if len(points) > 0:
                    passed = i64(0)
                    while following < mcu:
                        following += gaps_at[passed]
                        passed += 1
                    counted = follow(points, number, passed, count, trail, base + 2 * done, stuffed, counted)
                    if counted < 0:
                        return 0, 0
                    number += passed
        ready = bottom if mcu_row == last_row else min((mcu_row + 1) * 8 * header[hd.V_MAX] - lag, bottom)
        if not hand_over(
            header, layout, planes, finished, ready, top, left, height, sink, out, pointer_to(spare)
        ):  # fmt: skip
            return 0, 0
        finished = max(finished, ready)
    if last_row < known:
        return known, 0
    used = _used(bits, at)
    if used > end or (used < end and last_row == rows - 1):
        return 0, 0
    bit, counted = bit_in_file(i64(at) * 8 - i64(bits), base + 2 * done, pointer_to(stuffed), counted)
    return last_row + 1, bit


@njit
def decode_scan(
    data: Any, header: Any, layout: Any, top: int, left: int, look: Any, codes: Any, order: Any,
    tables: Any, quant: Any, coefficients: Any, slots: Any, predictions: Any, spare: Any, ends: Any, stuffed: Any,
    stream: Any, planes: Any, trail: Any, points: Any, sums: Any, index: Any, height: int, sink: Any, out: Any,
) -> int:  # fmt: skip
    """Decode the region from (top, left) on that `layout` describes.

    Args:
        data, header, layout: as for `layout.prepare`, which must have accepted them.
        look, codes: memory for the Huffman tables.
        order, tables: scratch.block_order(), scratch.idct_tables().
        quant, coefficients, slots, predictions, spare, trail, sums: working memory.
        ends: int64[restart intervals] or more, working memory.
        stuffed: uint32[len(data) / 2 + AT_ONCE] or more, working memory.
        stream: uint8[len(data) + SLACK] or more, working memory.
        planes: uint8[the result of prepare] or more, working memory.
        points: int32[index_fields.POINT * most_points(len(data))] or more, working memory.
        index: uint16[header[INDEX_BYTES] / 2], the file's index, to which points are added; empty: none is wanted.
        height: the region's number of rows.
        sink: the words of a call (`decode_fields.TAKE_BAND`) that takes the rows in bands, in order; empty: none.
            If the index turns out to be wrong, the sink is called again from the first band on, and all bands before
            are void. All bands are void if the result is 0.
        out: uint8[height, width, 1 or 3]; with a sink uint8[rows of a band, width, 1 or 3].

    Returns:
        0: the file is damaged or odd.  Else GOOD, with bits for the index: USED, GROWN, and DROPPED: the picture is
        right, but the index was not the file's or was damaged, and is made anew.
    """
    if not quantisers(data, header, order, quant) or not huffman(data, header, look, codes):
        return 0
    tools = (
        pointer_to(stream), pointer_to(look), pointer_to(codes), pointer_to(quant), pointer_to(order),
        pointer_to(coefficients), pointer_to(predictions), pointer_to(planes), pointer_to(trail), pointer_to(tables),
    )  # fmt: skip
    known, dropped, known_end = 0, 0, i64(0)
    if len(index) > 0 and index[ix.KIND] != 0:
        known = known_rows(header, index, digest(data, sums))
        dropped = DROPPED if known < 0 else 0
        known = max(known, 0)
    if known > 0:
        known_end = end_of(index)
        _unpack(header, layout, index, known, points)
    while True:
        coefficients[:] = 0
        then, end = _walk(
            data, header, layout, top, left, points if len(index) > 0 else points[:0], known, known_end, tools, slots,
            predictions, ends, stuffed, spare, sums, height, sink, out,
        )  # fmt: skip
        if then > 0 or known == 0:
            break
        known, dropped = 0, DROPPED
    if then == 0:
        return 0
    result = GOOD | dropped
    if known > 0:
        result |= USED
    if then > known and len(index) > 0:
        if known == 0:
            index[:] = 0  # nothing is left of a dropped one
        seal(header, points, known, index, sums[0], then, end)
        result |= GROWN
    return result
