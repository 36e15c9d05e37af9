"""Compiled code of ``headers`` and ``index``: headers and stream indexes of a batch of files, and indexes of points."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from accel.codec.jpeg import header_fields as hd
from accel.codec.jpeg import index_fields as ix
from accel.codec.jpeg.layout import needed_mcus, prepare
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
from accel.system.native.memory import i64, u64

_FIXED = 1 << 16  # bytes that every file takes: tables, descriptions
_BUCKET = 6  # low bits of a segment's length that are ignored in sorting

# Words of a segment, int32[9], as picture.h has it.
_FROM, _TO, _MCU, _MCUS, _WHOLE = 0, 3, 6, 7, 8
_POINT = 3  # words of a point


@njit
def read_headers(
    files: Any,
    starts: Any,
    sizes: Any,
    boxes: Any,
    channels: Any,
    good: Any,
    headers: Any,
    regions: Any,
    described: Any,
    most: int,
) -> int:
    """Read headers (see ``headers.read``); files of ``most`` bytes or more are refused."""
    for n in range(len(starts)):
        data = files[starts[n] : starts[n] + sizes[n]]
        top, left, height, width = boxes[n, 0], boxes[n, 1], boxes[n, 2], boxes[n, 3]
        fits = sizes[n] < most and prepare(data, headers[n], regions[n], False, top, left, height, width) > 0
        coloured = channels[n] == 3 or headers[n, hd.COMPONENTS] == 1
        good[n] = fits and coloured and headers[n, hd.SCAN] < sizes[n]
        described[n, 0], described[n, 1], described[n, 2] = starts[n], sizes[n], channels[n]
    return 0


@njit
def device_bytes(sizes: Any, table: Any, boxes: Any, channels: Any, total: Any) -> int:
    """Compute ``requests.device_bytes``: total int64 [n]. ``sizes``: the bytes of files, 0 for others."""
    for n in range(len(sizes)):
        height, width = table[n, table.shape[1] - 2], table[n, table.shape[1] - 1]
        samples = 3 * (boxes[n, 2] + 32) * (boxes[n, 3] + 32)  # the most samples of the region, in whole MCUs
        blocks = 3 * (height + 32) * (width + 32) // 64
        needed = _FIXED + 4 * sizes[n] + 3 * samples + 8 * blocks + boxes[n, 2] * boxes[n, 3] * channels[n]
        total[n] = needed if sizes[n] > 0 else 0
    return 0


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
    left, right, top, last_row, _ = needed
    row = (stop - 1) // columns
    column = stop - 1 - row * columns
    if row > last_row:
        row, column = last_row, columns - 1
    if column < left:
        row, column = row - 1, columns - 1
    return row * columns + min(column, right - 1) + 1 if row >= top else i64(0)


@njit
def _segments(header: Any, size: int, needed: Any, points: Any, known: Any, end: Any, buckets: Any, out: Any) -> Any:
    """Fill out[1] with the segments that a region needs; returns their number, 0 if the index cannot be right.

    A segment goes from a point to the last MCU that is needed before the next one. Its bucket is counted (``_sort``).
    """
    left, right, top, last_row, _ = needed
    columns, rows = mcus(header)
    number = nearest(points, min(point_up_to(header, top * columns + left), known - 1))
    behind = point_up_to(header, last_row * columns + right - 1) + 1
    buckets[:] = 0
    count = i64(0)
    while number < behind:
        start, following = mcu_at(header, number), next_point(points, number + 1, known)
        stop = min(mcu_at(header, following), columns * rows)
        last, bit = _needed_before(stop, needed, columns), i64(points[ix.POINT * number])
        if start < last:
            words = out[1, count]
            _put(points, number, words, _FROM)
            ending = bit_of(points, following, known, end)
            if i64(words[_FROM]) < header[hd.SCAN] or i64(words[_FROM]) >= size or ending <= bit:
                return 0
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
    return count


@njit
def _sort(buckets: Any, count: Any, out: Any) -> None:
    """Sort segments from out[1] to out[0] by length, the longest first, so that the threads of a warp end together."""
    total = i64(0)
    for i in range(len(buckets)):
        total += buckets[i]
        buckets[i] = total - buckets[i]
    for i in range(count):
        bucket = out[1, i, _WHOLE] >> 1
        words = out[0, buckets[bucket]]
        buckets[bucket] += 1
        for k in range(_WHOLE):
            words[k] = out[1, i, k]
        words[_WHOLE] = out[1, i, _WHOLE] & 1


@njit
def read_segments(
    files: Any,
    spans: Any,
    headers: Any,
    regions: Any,
    indexes: Any,
    found: Any,
    segments: Any,
    plain: Any,
    sums: Any,
    buckets: Any,
) -> int:
    """Read segments (see ``index.read``); return the number of segments of all files.

    Args:
        spans: int64[n, 4]: each file's offset and size, and the words of its index in ``indexes``, from and to; -1: it
            gets none.
        found: int64[n, 3], to be filled: the number of segments, whether the index is the file's, and its digest.
        segments: int32[2, ..., 9]; the second half is working memory, as are plain, sums and buckets.
    """
    total = i64(0)
    for n in range(len(headers)):
        header, (start, size, begin, end) = headers[n], (spans[n, 0], spans[n, 1], spans[n, 2], spans[n, 3])
        found[n, 0], found[n, 1], found[n, 2] = 0, 1, 0
        if begin < 0 or header[hd.INDEX_BYTES] == 0:
            continue
        own = digest(files[start : start + size], sums)
        index, needed = indexes[begin:end], needed_mcus(header, regions[n])
        rows = known_rows(header, index, own)
        found[n, 1], found[n, 2] = rows >= 0, i64(own)
        if rows > needed[3]:
            known = points_of(rows, header)
            first = point_up_to(header, needed[2] * mcus(header)[0] + needed[0])
            unpack_points(header, index, min(first, known - 1), known, plain)
            found[n, 0] = _segments(header, size, needed, plain, known, end_of(index), buckets, segments[:, total:])
            _sort(buckets, found[n, 0], segments[:, total:])
            total += found[n, 0]
    return int(total)


@njit
def _write(header: Any, own: Any, report: Any, first: Any, count: Any, plain: Any, index: Any) -> None:
    """Make an index of points in picture.h's layout, the last of which is behind the last MCU."""
    bit = i64(0)
    for number in range(count):
        place, at = first + number * _POINT, ix.POINT * number
        bit = 8 * i64(report[place]) + (report[place + 2] >> 16)
        plain[at], plain[at + 1] = bit, np.int16(report[place + 1])
        plain[at + 2], plain[at + 3] = np.int16(report[place + 1] >> 16), np.int16(report[place + 2])
    seal(header, plain, 0, index, own, mcus(header)[1], bit)


@njit
def write_indexes(
    headers: Any, which: Any, digests: Any, report: Any, offsets: Any, sizes: Any, ends: Any, plain: Any, indexes: Any
) -> int:
    """Write indexes (see ``index.written``). The report is int32; offsets and sizes are in bytes; ``ends``: of
    indexes; ``plain``: working memory."""
    begin = i64(0)
    for k in range(len(which)):
        n, end = which[k], ends[k] >> 1
        count = sizes[n] // (4 * _POINT)
        _write(headers[n], u64(digests[n]), report, offsets[n] >> 2, count, plain, indexes[begin:end])
        begin = end
    return 0
