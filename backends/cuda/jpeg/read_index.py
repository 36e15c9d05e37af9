"""Compiled code of ``index``: stream indexes of a batch of JPEG files, for the kernels and from them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from accel.codec.jpeg import header_fields as hd
from accel.codec.jpeg import index_fields as ix
from accel.codec.jpeg import layout_fields as lo
from accel.codec.jpeg.points import (
    bit_of,
    end_of,
    known_rows,
    mcu_at,
    mcus,
    nearest,
    next_point,
    point_up_to,
    points_of,
    seal,
    unpack_points,
)
from accel.system.native.digest import digest
from accel.system.native.memory import advanced, copy_and_find_ff, i64, pointer_to, u64

_BUCKET = 6  # low bits of a segment's length that are ignored in sorting

_ALIGNED = 64  # files begin at multiples of it, and are moved by multiples
_BEHIND = 16  # bytes that are read behind the last symbol

# Words of a segment, int32[9], as picture.h has it.
_FROM, _TO, _MCU, _MCUS, _WHOLE = 0, 3, 6, 7, 8
_POINT = 3  # words of a point


@njit
def _needed(header: Any, region: Any) -> tuple[Any, Any, Any, Any]:
    """The MCUs that a region needs: half-open ranges of rows and columns."""
    top, bottom, left, right = i64(1) << 40, i64(0), i64(1) << 40, i64(0)
    for c in range(header[hd.COMPONENTS]):
        fields, row = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c :], region[c]
        h, v = fields[hd.H_SAMP], fields[hd.V_SAMP]
        top, bottom = min(top, row[lo.BLOCK_TOP] // v), max(bottom, -(-row[lo.BLOCK_BOTTOM] // v))
        left, right = min(left, row[lo.BLOCK_LEFT] // h), max(right, -(-row[lo.BLOCK_RIGHT] // h))
    return top, bottom, left, right


@njit(forceinline=True)
def _put(points: Any, number: Any, words: Any, place: Any) -> None:
    """Write a point in picture.h's layout."""
    bit, at = i64(points[ix.POINT * number]), ix.POINT * number + 1
    words[place] = bit >> 3
    words[place + 1] = i64(points[at]) & 0xFFFF | i64(points[at + 1]) << 16
    words[place + 2] = i64(points[at + 2]) & 0xFFFF | (bit & 7) << 16


@njit
def _needed_before(stop: Any, needed: Any, columns: Any) -> Any:
    """The MCU behind the last needed one before `stop`; 0 if there is none."""
    top, bottom, left, right = needed
    row = (stop - 1) // columns
    column = stop - 1 - row * columns
    if row >= bottom:
        row, column = bottom - 1, columns - 1
    if column < left:
        row, column = row - 1, columns - 1
    return row * columns + min(column, right - 1) + 1 if row >= top else i64(0)


@njit
def _segments(
    header: Any, size: int, needed: Any, points: Any, known: Any, end: Any, buckets: Any, unsorted: Any, out: Any
) -> Any:
    """Fill in the segments that a region needs; return their number, 0 if the index cannot be right, and the bit that
    ends them all.

    A segment goes from a point to the last MCU that is needed before the next one. They are sorted by length, the
    longest first, so that the threads of a warp end together.
    """
    top, bottom, left, right = needed
    columns, rows = mcus(header)
    number = nearest(points, min(point_up_to(header, top * columns + left), known - 1))
    behind = point_up_to(header, (bottom - 1) * columns + right - 1) + 1
    buckets[:] = 0
    count, furthest = i64(0), i64(0)
    while number < behind:
        start, following = mcu_at(header, number), next_point(points, number + 1, known)
        stop = min(mcu_at(header, following), columns * rows)
        last, bit = _needed_before(stop, needed, columns), i64(points[ix.POINT * number])
        if start < last:
            words = unsorted[count]
            _put(points, number, words, _FROM)
            ending = bit_of(points, following, known, end)
            if i64(words[_FROM]) < header[hd.SCAN] or i64(words[_FROM]) >= size or ending <= bit:
                return 0, furthest
            furthest = max(furthest, ending)
            words[_TO], words[_TO + 1], words[_TO + 2] = 0, 0, 0
            if last == stop and following < known:
                _put(points, following, words, _TO)
            words[_MCU], words[_MCUS] = start, last - start
            length = (ending - bit) * (last - start) // (stop - start)
            bucket = max(len(buckets) - 1 - (length >> _BUCKET), 0)
            words[_WHOLE] = bucket << 1 | (last == stop and (following < known or stop == columns * rows))
            buckets[bucket] += 1
            count += 1
        number = following
    total = i64(0)
    for i in range(len(buckets)):
        total += buckets[i]
        buckets[i] = total - buckets[i]
    for i in range(count):
        bucket = unsorted[i, _WHOLE] >> 1
        words = out[buckets[bucket]]
        buckets[bucket] += 1
        for k in range(_WHOLE):
            words[k] = unsorted[i, k]
        words[_WHOLE] = unsorted[i, _WHOLE] & 1
    return count, furthest


@njit
def _part(header: Any, size: int, segments: Any, furthest: Any) -> tuple[Any, Any]:
    """The part of a file's scan that has the segments: by how much later it begins, and where it ends."""
    first = i64(size)
    for i in range(len(segments)):
        first = min(first, i64(segments[i, _FROM]))
    end = (furthest >> 3) + _BEHIND
    return (first - header[hd.SCAN]) // _ALIGNED * _ALIGNED, min(end, i64(size))


@njit
def _move(files: Any, source: Any, target: Any, first: int, end: int) -> None:
    """Move bytes[first:end] of a file from `source` to `target`, both multiples of _ALIGNED, with room to one.

    It moves _ALIGNED bytes at a time, which is no more than the distance.
    """
    if source == target:
        return
    begin = min(-(-first // _ALIGNED) * _ALIGNED, end)
    for i in range(first, begin):
        files[target + i] = files[source + i]
    place = pointer_to(files)
    for i in range(begin, end, _ALIGNED):
        copy_and_find_ff(advanced(place, source + i), advanced(place, target + i))


@njit
def move_pieces(files: Any, pieces: Any) -> int:
    """Move the needed pieces of files together within their memory: see ``index.Known``."""
    for n in range(len(pieces)):
        _move(files, pieces[n, 0], pieces[n, 2], 0, pieces[n, 3])
        if pieces[n, 4] > 0:
            _move(files, pieces[n, 1], pieces[n, 2], pieces[n, 3], pieces[n, 3] + pieces[n, 4])
    return 0


@njit
def read_segments(
    files: Any, starts: Any, sizes: Any, headers: Any, regions: Any, asked: Any, moves: bool, indexes: Any,
    places: Any, plain: Any, sums: Any, buckets: Any, digests: Any, counts: Any, fits: Any, unsorted: Any,
    segments: Any, pieces: Any,
) -> int:  # fmt: skip
    """Read segments (see ``index.read``); return the number of segments of all files."""
    total, target = i64(0), i64(0)
    for n in range(len(starts)):
        start, scan, shift, end = starts[n], headers[n, hd.SCAN], i64(0), sizes[n]
        counts[n], fits[n] = 0, True
        if asked[n] and headers[n, hd.INDEX_BYTES] > 0:
            own = digest(files[start : start + end], sums)
            digests[n] = i64(own)
            index, needed = indexes[places[n] : places[n + 1]], _needed(headers[n], regions[n])
            rows = known_rows(headers[n], index, own)
            fits[n] = rows >= 0
            if rows >= needed[1]:
                known = points_of(rows, headers[n])
                first = point_up_to(headers[n], needed[0] * mcus(headers[n])[0] + needed[2])
                unpack_points(headers[n], index, min(first, known - 1), known, plain)
                counts[n], furthest = _segments(
                    headers[n], end, needed, plain, known, end_of(index), buckets, unsorted, segments[total:]
                )
                if counts[n] > 0 and moves:
                    own_segments = segments[total : total + counts[n]]
                    shift, end = _part(headers[n], end, own_segments, furthest)
                    for i in range(counts[n]):
                        own_segments[i, _FROM] -= shift
                        own_segments[i, _TO] -= shift if own_segments[i, _TO] > 0 else 0
                total += counts[n]
        head = scan if shift > 0 else end
        pieces[n, 0], pieces[n, 1], pieces[n, 2] = start, start + shift, target
        pieces[n, 3], pieces[n, 4] = head, end - shift - head
        starts[n], sizes[n] = target, end - shift
        target += -(-(end - shift) // _ALIGNED) * _ALIGNED
    return int(total)


@njit
def _write(header: Any, own: Any, told: Any, first: Any, count: Any, plain: Any, index: Any) -> None:
    """Make an index of points in picture.h's layout, the last of which is behind the last MCU."""
    bit = i64(0)
    for number in range(count):
        place, at = first + number * _POINT, ix.POINT * number
        bit = 8 * i64(told[place]) + (told[place + 2] >> 16)
        plain[at], plain[at + 1] = bit, np.int16(told[place + 1])
        plain[at + 2], plain[at + 3] = np.int16(told[place + 1] >> 16), np.int16(told[place + 2])
    seal(header, plain, 0, index, own, mcus(header)[1], bit)


@njit
def write_indexes(
    headers: Any, which: Any, digests: Any, told: Any, offsets: Any, sizes: Any, ends: Any, plain: Any, indexes: Any
) -> int:
    """Write indexes (see ``index.written``). Points are told as int32; offsets and sizes are in bytes; ``ends``: of
    indexes; ``plain``: working memory."""
    begin = i64(0)
    for k in range(len(which)):
        n, end = which[k], ends[k] >> 1
        count = sizes[n] // (4 * _POINT)
        _write(headers[n], u64(digests[n]), told, offsets[n] >> 2, count, plain, indexes[begin:end])
        begin = end
    return 0
