"""Compiled code of ``columns`` and ``finished``: descriptors of a batch's passes, and programs made of descriptors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from accel.backends.cuda.declarations import constant, enumerators, positions, structure
from accel.backends.cuda.regions import ALIGNED, SHIFT, Region
from accel.planning.column_fields import LENGTH, SIZE, START, STEP, WINDOW, WINDOW_STEP

_PASS, _AXIS, _JOB = (structure("pass.h", name) for name in ("Pass", "Axis", "CoefficientJob"))
_MODES = enumerators("pass.h", "Mode")
_COPY, _COLUMNS_FIRST, _ROWS_FIRST = (_MODES[name] for name in ("COPY", "COLUMNS_FIRST", "ROWS_FIRST"))
_TILE_ROWS, _TILE_COLUMNS = constant("tile.h", "ROWS"), constant("tile.h", "COLUMNS")
_RESULT, _UPLOAD, _SCRATCH, _DECODED = map(int, (Region.RESULT, Region.UPLOAD, Region.SCRATCH, Region.DECODED))
_REGION, _FROM_DECODED = np.uint64(SHIFT), np.uint64((_DECODED - _SCRATCH) << SHIFT)

_P, _A, _J = positions(_PASS), positions(_AXIS), positions(_JOB)
_AXES = _P.rows, _P.columns

# Numbers of ``lower``, as ``columns`` gives them.
CHANNELS, SHOWN, BYTES, IS_PLANAR, VALUES, COLOURS, WINDOWS, RESAMPLE, PLACED = 0, 1, 3, 4, 5, 6, 7, 9, 10


@njit
def _sizes(axis: Any, support: float, shown: Any) -> tuple[Any, Any]:
    """The bytes of an axis' bounds, and of them and its coefficients, if it is resampled as a whole."""
    taps = np.int64(1)
    if axis[LENGTH] != axis[SIZE]:
        taps = np.int64(np.ceil(support * max(axis[LENGTH] / axis[SIZE], 1.0))) * 2 + 1
    bounds = (4 * (2 * shown + 1) + ALIGNED - 1) & -ALIGNED
    return bounds, bounds + 4 * taps * shown


@njit
def device_bytes(boxes: Any, axes: Any, height: int, width: int, channels: int, support: float, total: Any) -> int:
    """Compute ``columns.device_bytes``: total int64 [n]. ``height``, ``width``: of the results."""
    for n in range(len(boxes)):
        total[n] = (boxes[n, 2] * boxes[n, 3] + height * width) * channels
        if axes[0, n, LENGTH] != axes[0, n, SIZE] or axes[1, n, LENGTH] != axes[1, n, SIZE]:
            total[n] += _sizes(axes[0, n], support, height)[1] + _sizes(axes[1, n], support, width)[1]
    return 0


@njit
def _span(axis: Any, shown: Any) -> tuple[Any, Any]:
    """The half-open range of positions that a window shows."""
    first = axis[WINDOW]
    last = first + axis[WINDOW_STEP] * (shown - 1)
    return max(min(first, last), 0), min(max(first, last) + 1, axis[SIZE])


@njit
def _list(axis: Any, seen: Any, resampled: Any, out: Any) -> None:
    """List the positions that an axis shows, -1 where that is the fill colour: everywhere if nothing is ``seen``."""
    for k in range(len(out)):
        at = axis[WINDOW] + axis[WINDOW_STEP] * k
        if not seen or at < 0 or at >= axis[SIZE]:
            out[k] = -1
        else:
            out[k] = at if resampled else axis[START] + axis[STEP] * at


@njit
def _describe(
    axis: Any, stride: Any, seen: Any, resampled: Any, place: Any, listed: Any, long: Any, words: Any
) -> None:
    """Fill in the fields of an axis: the positions shown, of the input itself if nothing is resampled."""
    start, step = axis[WINDOW], axis[WINDOW_STEP]
    long[_A.stride // 2] = stride * (axis[STEP] if resampled else 1)
    if len(listed):
        _list(axis, seen, resampled, listed)
        long[_A.window // 2], words[_A.step] = place, 1
    elif resampled:
        words[_A.start], words[_A.step] = start, step
    else:
        words[_A.start], words[_A.step] = axis[START] + axis[STEP] * start, axis[STEP] * step


@njit
def _known(table: Any, jobs: Any, axis: Any, first: Any, shown: Any, count: Any) -> Any:
    """The number of the job of axes that are resampled alike, else ``count``, which is noted as this one's."""
    mask, mixed = len(table) - 1, axis[LENGTH] * 40503 + axis[SIZE] * 10007 + first * 613 + shown
    at = (mixed ^ mixed >> 13) & mask
    while True:
        number = np.int64(table[at]) - 1
        if number < 0:
            table[at] = count + 1
            return count
        own = jobs[number]
        same_axis = own[_J.length] == axis[LENGTH] and own[_J.size] == axis[SIZE]
        if same_axis and own[_J.first] == first and own[_J.count] == shown:
            return number
        at = (at + 1) & mask


@njit
def lower(
    boxes: Any,
    axes: Any,
    rows_first: Any,
    sources: Any,
    numbers: Any,
    support: float,
    passes: Any,
    jobs: Any,
    table: Any,
    of_rows: Any,
    of_columns: Any,
) -> int:
    """Fill in the descriptors of n passes and of the coefficients that they need, which axes resampled alike share.

    Args:
        boxes, axes, rows_first: of ``Columns``. sources: places of the pixels.
        numbers: see above; the last is the first free place of scratch memory, and is moved behind what is taken.
        passes, jobs: PASS [n] and COEFFICIENT_JOB [up to 2 n], zero, as int64 [n, words].
        table: int32 [a power of two above 2 n], zero.
        of_rows, of_columns: int32 [n, padded length], for the positions shown, or [n, 0] if nothing is filled.

    Returns:
        The number of jobs.
    """
    shown, channels, count = numbers[SHOWN : SHOWN + 2], numbers[CHANNELS], np.int64(0)
    across = (shown[1] + _TILE_COLUMNS - 1) // _TILE_COLUMNS
    blocks = (shown[0] + _TILE_ROWS - 1) // _TILE_ROWS * across
    long, words, free = passes, passes.view(np.int32), numbers[PLACED]
    job_long, job_spans, job_words = jobs, jobs.view(np.float64), jobs.view(np.int32)
    size = channels * shown[0] * shown[1] * numbers[BYTES]
    for n in range(len(boxes)):
        own, own_words = long[n], words[n]
        spans = _span(axes[0, n], shown[0]), _span(axes[1, n], shown[1])
        resampled = (axes[0, n, LENGTH] != axes[0, n, SIZE], axes[1, n, LENGTH] != axes[1, n, SIZE])
        seen = spans[0][1] > spans[0][0] and spans[1][1] > spans[1][0]  # else all of it is the fill colour
        resamples = seen and (resampled[0] or resampled[1])
        own[_P.source // 2], own[_P.target // 2] = sources[n], (np.int64(_RESULT) << SHIFT) + size * n
        own[_P.table // 2], own[_P.fills // 2] = numbers[VALUES], numbers[COLOURS]
        own_words[_P.height], own_words[_P.width], own_words[_P.across] = shown[0], shown[1], across
        own_words[_P.itemsize], own_words[_P.planar], own_words[_P.first_block] = (
            numbers[BYTES],
            numbers[IS_PLANAR],
            n * blocks,
        )
        own_words[_P.mode] = _COPY
        strides = boxes[n, 3] * channels, channels
        if resamples:
            rows = rows_first[n] != 0 and resampled[0] and resampled[1]
            own_words[_P.mode] = _ROWS_FIRST if rows else _COLUMNS_FIRST
            own[_P.origin // 2] = axes[0, n, START] * strides[0] + axes[1, n, START] * strides[1]
        for a in range(2):
            at, axis = _AXES[a], axes[a, n]
            own_axis, own_axis_words = own[at // 2 :], own_words[at:]
            listed = of_rows[n] if a == 0 else of_columns[n]
            place = numbers[WINDOWS + a] + 4 * len(listed) * n
            _describe(axis, strides[a], seen, resamples, place, listed, own_axis, own_axis_words)
            if resamples:
                first, last = spans[a]
                number = _known(table, job_words, axis, first, last - first, count)
                made, made_words = job_long[number], job_words[number]
                if number == count:
                    bounds, whole = _sizes(axis, support, last - first)
                    made[_J.bounds // 2], made[_J.coefficients // 2] = free, free + bounds
                    free += (whole + ALIGNED - 1) & -ALIGNED
                    job_spans[number, _J.span // 2] = axis[LENGTH]
                    made_words[_J.resample], made_words[_J.length] = numbers[RESAMPLE], axis[LENGTH]
                    made_words[_J.size], made_words[_J.first], made_words[_J.count] = axis[SIZE], first, last - first
                    count += 1
                own_axis[_A.bounds // 2], own_axis[_A.coefficients // 2] = (
                    made[_J.bounds // 2],
                    made[_J.coefficients // 2],
                )
                own_axis_words[_A.first], own_axis_words[_A.count] = made_words[_J.first], made_words[_J.count]
    numbers[PLACED] = free
    return int(count)


@njit
def write_items(
    items: Any,
    at: int,
    blocks: Any,
    owners: Any,
    fields: Any,
    upload: int,
    scratch: int,
    words: Any,
    fixups: Any,
    first: int,
) -> int:
    """Write the items of launches to a program, turn their places into others, and note where these are.

    Args:
        items: uint8 [...], n structures, which get their place ``at``, in bytes.
        blocks: int64 [launches, n], the blocks of each item. owners: int64 [launches], where every block's item goes.
        fields: int64 [k], the 64-bit words of a structure that are places. upload, scratch: what is added to those in
            these regions; the decoder's pixels begin scratch memory.
        words: uint64 [...], the program. fixups: int32 [...], gets the positions of the places from ``first`` on.

    Returns:
        The end of what was written to ``fixups``.
    """
    numbers, source, begin, count = words.view(np.int32), items.view(np.uint64), at // 8, blocks.shape[1]
    for k in range(len(source)):
        words[begin + k] = source[k]
    for k in range(len(blocks)):
        to = owners[k] // 4
        for n in range(count):
            for _ in range(blocks[k, n]):
                numbers[to] = n
                to += 1
    for n in range(count):
        for k in range(len(fields)):
            word = begin + n * (len(source) // count) + fields[k]
            fixups[first] = word
            first += 1
            region = words[word] >> _REGION
            if region == _UPLOAD:
                words[word] += np.uint64(upload)
            elif region == _SCRATCH:
                words[word] += np.uint64(scratch)
            elif region == _DECODED:
                words[word] -= _FROM_DECODED
    return first
