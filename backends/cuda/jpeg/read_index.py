"""Compiled code of ``index``: stream indexes of a batch of JPEG files, for the kernels and from them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from accel.codec.jpeg import header_fields as hd
from accel.codec.jpeg import index_fields as ix
from accel.codec.jpeg import layout_fields as lo
from accel.codec.jpeg.digest import digest
from accel.codec.jpeg.header import mcus
from accel.codec.jpeg.memory import advanced, copy_and_find_ff, i64, pointer_to, u64
from accel.codec.jpeg.points import bit_of, known_rows, points_of, seal

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
def _put(index: Any, at: Any, components: Any, words: Any, place: Any) -> None:
    """Write the index's point whose words begin at `at`, in picture.h's layout."""
    bit = i64(index[at]) | i64(index[at + 1]) << 16
    at += ix.POINT
    words[place] = bit >> 3
    words[place + 1], words[place + 2] = index[at], (bit & 7) << 16
    if components == 3:
        words[place + 1] = i64(index[at]) | i64(index[at + 1]) << 16
        words[place + 2] = i64(index[at + 2]) | (bit & 7) << 16


@njit
def _segments(
    header: Any, size: int, needed: Any, index: Any, points: Any, buckets: Any, unsorted: Any, out: Any
) -> Any:
    """Fill in the segments that a region needs; return their number, 0 if the index cannot be right.

    A segment goes from a point to the last MCU that is needed before the next one. They are sorted by length, the
    longest first, so that the threads of a warp end together.
    """
    top, bottom, left, right = needed
    (columns, rows), spacing, components = mcus(header), header[hd.SPACING], header[hd.COMPONENTS]
    number = (top * columns + left) // spacing
    behind = ((bottom - 1) * columns + right - 1) // spacing + 1
    buckets[:] = 0
    count = i64(0)
    start, at = number * spacing, ix.POINTS + number * (ix.POINT + components)
    while number < behind:
        number += 1
        stop = min(start + spacing, columns * rows)
        row = (stop - 1) // columns
        column = stop - 1 - row * columns
        if row >= bottom:
            row, column = bottom - 1, columns - 1
        if column < left:
            row, column = row - 1, columns - 1
        last = row * columns + min(column, right - 1) + 1
        if row >= top and last > start:
            words = unsorted[count]
            _put(index, at, components, words, _FROM)
            if i64(words[_FROM]) < header[hd.SCAN] or i64(words[_FROM]) >= size:
                return 0
            length = i64(bit_of(index, number, points, header)) - 8 * i64(words[_FROM])
            words[_TO], words[_TO + 1], words[_TO + 2] = 0, 0, 0
            if last == stop and number < points:
                _put(index, at + ix.POINT + components, components, words, _TO)
            words[_MCU], words[_MCUS] = start, last - start
            bucket = max(len(buckets) - 1 - (length * (last - start) // spacing >> _BUCKET), 0)
            words[_WHOLE] = bucket << 1 | (last == stop and (number < points or stop == columns * rows))
            buckets[bucket] += 1
            count += 1
        start, at = start + spacing, at + ix.POINT + components
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
    return count


@njit
def _part(header: Any, size: int, segments: Any, index: Any, points: Any) -> tuple[Any, Any]:
    """The part of a file's scan that has the segments: by how much later it begins, and where it ends."""
    first, last = i64(size), i64(0)
    for i in range(len(segments)):
        first = min(first, i64(segments[i, _FROM]))
        last = max(last, i64(segments[i, _MCU]) // header[hd.SPACING])
    end = (bit_of(index, last + 1, points, header) >> 3) + _BEHIND
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
    files: Any, starts: Any, sizes: Any, headers: Any, regions: Any, asked: Any, indexes: Any, places: Any,
    sums: Any, buckets: Any, digests: Any, counts: Any, fits: Any, unsorted: Any, segments: Any, pieces: Any,
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
                points = points_of(rows, headers[n])
                counts[n] = _segments(headers[n], end, needed, index, points, buckets, unsorted, segments[total:])
                if counts[n] > 0:
                    own_segments = segments[total : total + counts[n]]
                    shift, end = _part(headers[n], end, own_segments, index, points)
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
def _write(header: Any, own: Any, points: Any, first: Any, count: Any, index: Any) -> None:
    """Make an index of points in picture.h's layout, the last of which is behind the last MCU."""
    bit, at = i64(0), ix.POINTS
    for number in range(count):
        place = first + number * _POINT
        bit = 8 * i64(points[place]) + (points[place + 2] >> 16)
        if number == count - 1:
            break
        dc = (points[place + 1] & 0xFFFF, points[place + 1] >> 16 & 0xFFFF, points[place + 2] & 0xFFFF)
        index[at], index[at + 1] = np.uint16(bit & 0xFFFF), np.uint16(bit >> 16)
        at += ix.POINT
        for c in range(header[hd.COMPONENTS]):
            index[at] = np.uint16(dc[c])
            at += 1
    seal(header, index, own, mcus(header)[1], bit)


@njit
def write_indexes(
    headers: Any, which: Any, digests: Any, points: Any, offsets: Any, sizes: Any, ends: Any, indexes: Any
) -> int:
    """Write indexes (see ``index.written``). Points are int32; offsets and sizes are in bytes; ``ends``: of indexes."""
    begin = i64(0)
    for k in range(len(which)):
        n, end = which[k], ends[k] >> 1
        _write(headers[n], u64(digests[n]), points, offsets[n] >> 2, sizes[n] // (4 * _POINT), indexes[begin:end])
        begin = end
    return 0
