"""Stream indexes of a batch of JPEG files, for the kernels and from them: what ``index`` has compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from accel.codec.jpeg import header_fields as hd
from accel.codec.jpeg import index_fields as ix
from accel.codec.jpeg import layout_fields as lo
from accel.codec.jpeg.digest import digest
from accel.codec.jpeg.header import mcus
from accel.codec.jpeg.memory import i64, u64
from accel.codec.jpeg.points import bit_of, known_rows, points_of, seal, take

_BUCKET = 6  # bits of a segment's length that make no difference

# Words of a segment, int32[9], as picture.h has it.
_FROM, _TO, _MCU, _MCUS, _WHOLE = 0, 3, 6, 7, 8


@njit
def _needed(header: Any, region: Any) -> tuple[Any, Any, Any, Any]:
    """The MCUs that a region needs: first row, row behind, first column, column behind."""
    top, bottom, left, right = i64(1) << 40, i64(0), i64(1) << 40, i64(0)
    for c in range(header[hd.COMPONENTS]):
        fields, row = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c :], region[c]
        h, v = fields[hd.H_SAMP], fields[hd.V_SAMP]
        top, bottom = min(top, row[lo.BLOCK_TOP] // v), max(bottom, -(-row[lo.BLOCK_BOTTOM] // v))
        left, right = min(left, row[lo.BLOCK_LEFT] // h), max(right, -(-row[lo.BLOCK_RIGHT] // h))
    return top, bottom, left, right


@njit
def _until(number: Any, header: Any, needed: Any) -> tuple[Any, Any]:
    """MCUs from a point to the last one that is needed before the next point; and whether that is all of them."""
    top, bottom, left, right = needed
    columns, rows = mcus(header)
    start = number * header[hd.SPACING]
    stop = min(start + header[hd.SPACING], columns * rows)
    row = (stop - 1) // columns
    column = stop - 1 - row * columns
    if row >= bottom:
        row, column = bottom - 1, columns - 1
    if column < left:
        row, column = row - 1, columns - 1
    behind = row * columns + min(column, right - 1) + 1
    return (behind - start if row >= top else i64(0)), behind == stop


@njit
def _bucket(index: Any, number: Any, points: Any, header: Any, count: Any, last: Any) -> int:
    """Longer segments come first: those that are about as long make warps whose threads end together."""
    length = bit_of(index, number + 1, points, header) - bit_of(index, number, points, header)
    return max(last - (length * count // header[hd.SPACING] >> _BUCKET), 0)


@njit
def _put(index: Any, number: Any, points: Any, header: Any, predictions: Any, words: Any) -> None:
    """A point, as picture.h has it."""
    predictions[:] = 0
    bit = bit_of(index, number, points, header)
    take(index, number, header, predictions)
    words[0] = bit >> 3
    words[1] = (predictions[0] & 0xFFFF) | (predictions[1] << 16)
    words[2] = (predictions[2] & 0xFFFF) | ((bit & 7) << 16)


@njit
def _segments(
    header: Any, size: Any, needed: Any, index: Any, points: Any, predictions: Any, buckets: Any, out: Any
) -> Any:
    """Fill the segments that a region needs; returns how many, 0 where the index cannot be right."""
    top, bottom, left, right = needed
    columns, _ = mcus(header)
    first = (top * columns + left) // header[hd.SPACING]
    behind = ((bottom - 1) * columns + right - 1) // header[hd.SPACING] + 1
    buckets[:] = 0
    for number in range(first, behind):
        byte = bit_of(index, number, points, header) >> 3
        if byte < header[hd.SCAN] or byte >= size:
            return 0
        count, _ = _until(number, header, needed)
        if count > 0:
            buckets[_bucket(index, number, points, header, count, len(buckets) - 1)] += 1
    total = i64(0)
    for i in range(len(buckets)):
        total += buckets[i]
        buckets[i] = total - buckets[i]
    for number in range(first, behind):
        count, whole = _until(number, header, needed)
        if count <= 0:
            continue
        bucket = _bucket(index, number, points, header, count, len(buckets) - 1)
        words = out[buckets[bucket]]
        buckets[bucket] += 1
        _put(index, number, points, header, predictions, words[_FROM:])
        words[_TO:_MCU] = 0
        if whole and number + 1 < points:
            _put(index, number + 1, points, header, predictions, words[_TO:])
        words[_MCU], words[_MCUS] = number * header[hd.SPACING], count
        words[_WHOLE] = whole and (number + 1 < points or words[_MCU] + count == mcus(header)[0] * mcus(header)[1])
    return total


@njit
def read_segments(
    files: Any, starts: Any, sizes: Any, headers: Any, regions: Any, asked: Any, indexes: Any, places: Any,
    sums: Any, predictions: Any, buckets: Any, digests: Any, counts: Any, fits: Any, segments: Any,
) -> int:  # fmt: skip
    """``index.read``; returns how many segments there are of all files."""
    total = i64(0)
    for n in range(len(starts)):
        counts[n], fits[n] = 0, True
        if not asked[n] or headers[n, hd.INDEX_BYTES] == 0:
            continue
        own = digest(files[starts[n] : starts[n] + sizes[n]], sums)
        digests[n] = i64(own)
        index, needed = indexes[places[n] : places[n + 1]], _needed(headers[n], regions[n])
        rows = known_rows(headers[n], index, own)
        if rows >= needed[1]:
            points = points_of(rows, headers[n])
            counts[n] = _segments(headers[n], sizes[n], needed, index, points, predictions, buckets, segments[total:])
            total += counts[n]
        fits[n] = rows >= 0
    return total


@njit
def write_index(header: Any, own: int, points: Any, index: Any) -> int:
    """``index.written``: of points as picture.h has them, int32[n, 3], the last one behind the last MCU."""
    bit, at = i64(0), ix.POINTS
    for number in range(len(points)):
        words = points[number]
        bit = 8 * i64(words[0]) + (words[2] >> 16)
        if number == len(points) - 1:
            break
        dc = (words[1] & 0xFFFF, words[1] >> 16 & 0xFFFF, words[2] & 0xFFFF)
        index[at], index[at + 1] = np.uint16(bit & 0xFFFF), np.uint16(bit >> 16)
        at += ix.POINT
        for c in range(header[hd.COMPONENTS]):
            index[at] = np.uint16(dc[c])
            at += 1
    seal(header, index, u64(own), mcus(header)[1], bit)
    return 0
