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
from .decode_fields import DROPPED, GOOD, GROWN, USED
from .entropy import refill, unstuff
from .header import parse
from .layout import needed_mcus
from .pixels import hand_over
from .points import (
    bit_in_file,
    bit_of,
    end_of,
    follow,
    known_rows,
    mcu_at,
    mcu_in_line,
    mcus,
    nearest,
    next_point,
    point_up_to,
    points_of,
    seal,
    unpack_points,
)
from .scratch import STATE_SIZE, TRAIL
from .tables import huffman, quantisers
from .walk import Tools, fill_slots, keep, skip

# Places in the state of a walk (int64[STATE_SIZE]), behind each component's last DC coefficient.  BUFFER, BITS, AT: the
# window (entropy.py); MCU: the next one, -1 before the first; FOLLOWING, NUMBER: the MCU that the next point is before,
# and its number.  Of the piece of the scan that is in the stream: BASE, BEHIND: where it begins and ends in the file;
# PIECES, DONE: its restart intervals, and how many of them are done; COUNTED: stuffed zeros up to the last point;
# REMAINING, END: the MCUs that are left of this interval, and where it ends in the stream.
BUFFER, BITS, AT, MCU, FOLLOWING, NUMBER, BASE, BEHIND, PIECES, DONE, COUNTED, REMAINING, END = range(3, STATE_SIZE)


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
def _ahead(header: Any, needed: Any, row: Any, known: Any, points: Any, count: Any) -> Any:
    """The first point behind the walk from `row` to its next leap; -1: the walk goes beyond the `count` known ones."""
    (left, right, _, last_row, _), (columns, _), beyond = needed, mcus(header), i64(-1)
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


@njit
def _leap_to_row(
    data: Any, header: Any, needed: Any, row: Any, points: Any, known: Any, known_end: Any, tools: Any, sums: Any
) -> bool:
    """Leap to the last known point before a row's first needed MCU, or first one if the row is not known, if that is
    ahead of the walk; False: the scan is damaged or odd there."""
    columns, rows = mcus(header)
    state, count, start = tools.state, points_of(known, header) if len(points) > 0 else i64(0), row * columns
    leap, place = _leap(header, points, count, start + needed[0] if row < known else start)
    if state[MCU] >= 0 and place <= state[MCU]:
        return True
    number, mcu = max(leap, i64(0)), max(place, i64(0))
    bit, stop = 8 * header[hd.SCAN], i64(len(data))
    for c in range(3):
        state[c] = points[ix.POINT * number + 1 + c] if count > 0 else 0
    if count > 0:
        bit = i64(points[ix.POINT * number])
        ahead = _ahead(header, needed, row, known, points, count)
        if ahead >= 0:
            stop = (bit_of(points, next_point(points, ahead, count), count, known_end) + 7) >> 3
    base, interval = bit >> 3, header[hd.RESTART] if header[hd.RESTART] > 0 else columns * rows
    if base < state[BEHIND] - 1:  # points that go back are wrong; so only a byte that pieces share is copied twice
        return False
    ends, stuffed, intervals = tools.ends, tools.stuffed, header[hd.INTERVALS]
    pieces = unstuff(pointer_to(data), base, stop, len(data), tools.stream, ends, stuffed, mcu // interval, intervals)
    if pieces == 0:
        return False
    if count == 0 and len(points) > 0:
        digest(data, sums)  # now, while the bytes are in the caches
    state[MCU], state[NUMBER], state[FOLLOWING] = mcu, number, mcu if len(points) > 0 else i64(-1) << 40
    state[BASE], state[BEHIND], state[PIECES], state[DONE], state[COUNTED] = base, stop, pieces, 0, 0
    state[REMAINING], state[END] = interval - mcu % interval, ends[0]
    _begin_at(tools, 0, u64(bit & 7))
    return True


@njit(forceinline=True)
def _begin_at(tools: Any, byte: Any, used: Any) -> None:
    """Fill the window from a byte of the stream on, without the bits of it that are `used`."""
    buffer, bits, at = refill(tools.stream, u64(0), u64(0), u64(byte))
    tools.state[BUFFER], tools.state[BITS], tools.state[AT] = i64(buffer << used), i64(bits - used), i64(at)


@njit
def _begin_interval(tools: Any, interval: Any) -> bool:
    """Go on to the piece's next restart interval; False: the stream is not where this one ends, or there is none."""
    state = tools.state
    if _used(state[BITS], state[AT]) != state[END] or state[DONE] + 1 == state[PIECES]:
        return False
    _begin_at(tools, state[END], u64(0))
    for c in range(3):
        state[c] = 0
    state[DONE] += 1
    state[REMAINING], state[END] = interval, tools.ends[state[DONE]]
    return True


@njit
def _walk_to(
    header: Any, target: Any, row: Any, is_kept: bool, blocks: Any, points: Any, count: Any, tools: Any
) -> bool:
    """Walk up to an MCU of a row, whose needed blocks are kept or not; False: the file is damaged or odd."""
    state, start = tools.state, row * mcus(header)[0]
    in_line = header[hd.POINTS_IN_LINE] if len(points) > 0 else i64(1)
    while state[MCU] < target:
        if state[REMAINING] == 0 and not _begin_interval(tools, header[hd.RESTART]):
            return False
        column, stop = state[MCU] - start, min(target, state[MCU] + state[REMAINING]) - start
        until, gaps = state[FOLLOWING] - start, advanced(tools.trail, TRAIL * ix.MOST_PASSED + state[NUMBER] % in_line)
        window = u64(state[BUFFER]), u64(state[BITS]), u64(state[AT])
        if is_kept:
            buffer, bits, at, good = keep(tools, window, state[END], blocks, column, stop, until, gaps)
        else:
            buffer, bits, at, good = skip(tools, window, state[END], blocks, column, stop, until, gaps)
        state[BUFFER], state[BITS], state[AT] = i64(buffer), i64(bits), i64(at)
        state[REMAINING] -= stop - column
        state[MCU] += stop - column
        if not good or (len(points) > 0 and not _pass_points(points, count, gaps, tools)):
            return False
    return True


@njit
def _pass_points(points: Any, count: Any, gaps: Any, tools: Any) -> Any:
    """Compare, or note, the points that the walk has passed; False: one of the `count` known ones differs."""
    state, passed = tools.state, i64(0)
    while state[FOLLOWING] < state[MCU]:
        state[FOLLOWING] += gaps[passed]
        passed += 1
    base, counted = state[BASE] + 2 * state[DONE], state[COUNTED]
    state[COUNTED] = follow(points, state[NUMBER], passed, count, tools.trail, base, tools.stuffed, counted)
    state[NUMBER] += passed
    return state[COUNTED] >= 0


@njit(error_model="numpy")
def _walk(
    data: Any,
    header: Any,
    layout: Any,
    region: Any,
    points: Any,
    known: Any,
    tools: Any,
    sums: Any,
    sink: Any,
    out: Any,
) -> Any:
    """Decode a region (top, left, height) with the points (int32[n], see index_fields.py) of some rows of MCUs.

    Those of further rows are added.  `known`: the number of rows whose points are known, and the bit at which they end.
    `points` is empty if none are wanted.

    Returns the number of rows that are known then, 0 if the file is damaged or odd; and the bit of the file at which
    these end.  If points are wanted, the file's digest is left in sums[0].
    """
    (rows_before, known_end), (top, _, height) = known, region
    (columns, rows), needed, state = mcus(header), needed_mcus(header, layout), tools.state
    first_column, last_column, first_row, last_row, lag = needed
    finished, count = top, points_of(rows_before, header) if len(points) > 0 else i64(0)
    if len(points) > 0:
        _fill_gaps(header, advanced(tools.trail, TRAIL * ix.MOST_PASSED))
    state[MCU], state[BEHIND] = -1, 0
    for row in range(min(first_row, rows_before), last_row + 1):
        if not _leap_to_row(data, header, needed, row, points, rows_before, known_end, tools, sums):
            return 0, 0
        start, blocks = row * columns, fill_slots(header, layout, row, tools.slots)
        before = start + (first_column if row >= first_row else columns)
        behind = start + (columns if row >= rows_before else last_column)
        good = _walk_to(header, before, row, False, blocks, points, count, tools)
        good = good and _walk_to(header, start + last_column, row, True, blocks, points, count, tools)
        if not good or not _walk_to(header, behind, row, False, blocks, points, count, tools):
            return 0, 0
        ready = min((row + 1) * 8 * header[hd.V_MAX] - lag, top + height) if row < last_row else top + height
        if not hand_over(header, layout, tools, (finished, ready), region, sink, out):
            return 0, 0
        finished = max(finished, ready)
    if last_row < rows_before:
        return rows_before, 0
    used = _used(state[BITS], state[AT])
    if used > state[END] or (used < state[END] and last_row == rows - 1):
        return 0, 0
    base = state[BASE] + 2 * state[DONE]
    return last_row + 1, bit_in_file(state[AT] * 8 - state[BITS], base, tools.stuffed, state[COUNTED])[0]


@njit
def known_points(data: Any, header: Any, index: Any, sums: Any) -> int:
    """The number of points that an index has of a file, given the file's bytes only; 0 if it does not fit."""
    if not parse(data, header):
        return 0
    rows = known_rows(header, index, digest(data, sums))
    return points_of(rows, header) if rows > 0 else 0


@njit
def decode_scan(
    data: Any,
    header: Any,
    layout: Any,
    top: int,
    left: int,
    look: Any,
    codes: Any,
    order: Any,
    tables: Any,
    quant: Any,
    coefficients: Any,
    slots: Any,
    state: Any,
    spare: Any,
    ends: Any,
    stuffed: Any,
    stream: Any,
    planes: Any,
    trail: Any,
    points: Any,
    sums: Any,
    index: Any,
    height: int,
    sink: Any,
    out: Any,
) -> int:
    """Decode the region from (top, left) on that `layout` describes.

    Args:
        data, header, layout: as for `layout.prepare`, which must have accepted them.
        look, ..., sums: working memory (``jpeg._Scratch``), of which `order` and `tables` are filled; `ends` has an
            item for each restart interval, `planes` the bytes that prepare returned, others what ``jpeg._sizes`` says.
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
    tools = Tools(
        pointer_to(stream),
        pointer_to(ends),
        pointer_to(stuffed),
        pointer_to(look),
        pointer_to(codes),
        pointer_to(quant),
        pointer_to(order),
        pointer_to(tables),
        pointer_to(coefficients),
        pointer_to(slots),
        pointer_to(state),
        pointer_to(planes),
        pointer_to(trail),
        pointer_to(spare),
    )
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
            data,
            header,
            layout,
            (top, left, height),
            points if len(index) > 0 else points[:0],
            (known, known_end),
            tools,
            sums,
            sink,
            out,
        )
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
