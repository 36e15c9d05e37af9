"""The horizontal pass of a resize to far fewer columns, by dot products, equal to ``pass_resize.resize_columns``.

There a tap of a column costs as much as four do here, once a column's weights are split into digits (pass_quads.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit

from accel.backends.cpu.pass_quads import (
    DIGIT_BITS,
    DIGITS,
    QUAD,
    QUAD_WEIGHTS,
    sum_quads1,
    sum_quads3,
    turn1,
    turn3,
    turn4,
)
from accel.backends.cpu.pass_resize import copy_rows
from accel.backends.cpu.simd import LANES, transpose16
from accel.backends.shared.numba_memory import pointer

_DIGIT: Any = np.int8 if DIGIT_BITS == 8 else np.int16


@njit
def pays(taps: int) -> Any:
    """Whether columns of so many taps are computed faster here."""
    return taps >= 7


@njit
def _quads_of(taps: int) -> Any:
    """The most quads over which so many neighbours may spread."""
    return (taps + 6) // 4


@njit
def tile_size(n_bytes: int, channels: int, taps: int) -> Any:
    """Bytes for 16 rows as quads, with what is written and read beyond them, and before them room for rows' ends."""
    return LANES * (n_bytes + 2 * QUAD) + _quads_of(taps) * channels * QUAD


@njit
def weights_size(taps: int, size: int) -> Any:
    """Bytes of the weights of ``size`` columns, of at most ``taps`` coefficients each."""
    return size * _quads_of(taps) * QUAD_WEIGHTS


@njit
def _leftmost(bounds: Any, i: int, first: int, step: int) -> Any:
    """The leftmost column of the image that column i is computed from."""
    return first + step * (bounds[i, 0] if step > 0 else bounds[i, 0] + bounds[i, 1] - 1)


@njit
def _weigh(bounds: Any, coefficients: Any, first: int, step: int, count: int, memory: int) -> Any:
    """Write all columns' weights, ``count`` quads each, in the image's order; False if one does not fit the digits."""
    digits = carray(pointer(memory), (bounds.shape[0] * count * DIGITS * 4,), _DIGIT)
    digits[:] = 0
    fits = np.int64(0)
    for i in range(bounds.shape[0]):
        phase, taps = _leftmost(bounds, i, first, step) & 3, np.int64(bounds[i, 1])
        for t in range(taps):
            place = phase + (t if step > 0 else taps - 1 - t)
            at = (i * count + (place >> 2)) * DIGITS * 4 + (place & 3)
            rest = np.int64(coefficients[i, t])
            for digit in range(DIGITS):
                lowest = np.int64(_DIGIT(rest))
                digits[np.uint64(at + 4 * digit)] = lowest
                rest = (rest - lowest) >> DIGIT_BITS
            fits |= rest
    return fits == 0


@njit
def weigh(bounds: Any, coefficients: Any, first: int, step: int, memory: int) -> Any:
    """Write the weights, ``weights_size`` bytes; returns the quads of a column, 0 if a coefficient is too large."""
    most = np.int32(0)
    for i in range(bounds.shape[0]):
        most = max(most, bounds[i, 1])
    count = _quads_of(np.int64(most))  # the same for all columns, so that the loop's end is predicted
    return count if _weigh(bounds, coefficients, first, step, count, memory) else 0


@njit
def _turn(source: int, stride: int, channels: int, target: int) -> None:
    if channels == 3:
        turn3(source, stride, target)
    elif channels == 1:
        turn1(source, stride, target)
    else:
        turn4(source, stride, target)


@njit
def shrink_columns(
    source: int, stride: int, n_rows: int, n_bytes: int, beyond: int, first: int, step: int, channels: int,
    bounds: Any, count: int, shift: int, weights: int, tile: int, sums: int, target: int, target_stride: int,
) -> None:  # fmt: skip
    """Resample every row of an image to ``len(bounds)`` columns.

    ``source``: address of a row-major uint8 image of ``n_rows >= 16`` rows, ``stride`` bytes apart (either sign), and
    ``n_bytes`` bytes in each, in memory that ends at ``beyond``; view column p is its column ``first + step * p``.
    ``count``: the result of ``weigh``, which filled ``weights``.  ``tile``, ``sums``: workspaces of ``tile_size`` and
    ``16 * (padded(columns * channels) + 1)`` bytes.  ``target_stride`` is at least ``padded(columns * channels)``.
    """
    columns, room = bounds.shape[0], count * QUAD_WEIGHTS
    at_once = QUAD // (4 * channels) * 4 * channels  # bytes of each row
    spare, quads, pitch = tile, tile + LANES * QUAD, channels * QUAD
    for y in range(0, n_rows, LANES):
        row = min(y, n_rows - LANES)  # the last tile overlaps the one before
        here = source + row * stride
        last = max(here, here + (LANES - 1) * stride)
        for x in range(0, n_bytes, at_once):
            if last + x + QUAD <= beyond:
                _turn(here + x, stride, channels, quads + LANES * x)
            else:
                copy_rows(here + x, stride, LANES, min(n_bytes - x, at_once), spare, QUAD)
                _turn(spare, QUAD, channels, quads + LANES * x)
        for i in range(columns):
            begin = quads + _leftmost(bounds, i, first, step) // 4 * pitch
            weight, total = weights + i * room, sums + i * LANES * channels
            if channels == 3:
                sum_quads3(begin, pitch, weight, count, shift, total)
            else:
                for c in range(channels):
                    sum_quads1(begin + c * QUAD, pitch, weight, count, shift, total + c * LANES)
        for x in range(0, columns * channels, LANES):
            transpose16(sums + x * LANES, LANES, target + row * target_stride + x, target_stride)
