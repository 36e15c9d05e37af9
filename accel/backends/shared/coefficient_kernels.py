"""Resampling coefficients in fixed point, bit for bit.

Sources: Pillow, src/libImaging/Resample.c; ATen's for uint8, aten/src/ATen/native/cpu/UpSampleKernel.cpp
(HelperInterpBase).  An antialiasing filter has the same float64 coefficients in both; ATen then rounds them to as many
bits as the largest of an axis leaves of 16.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import carray, njit

from accel.backends.shared.numba_memory import pointer

LANCZOS, BILINEAR, BICUBIC, BOX, HAMMING = 1, 2, 3, 4, 5
ATEN, ATEN_POINT = 8, 16  # added to one of these: ``accel.ops.resample.Aten``

PILLOW_BITS = 32 - 8 - 2  # Resample.c: two bits for overshoot
MOST_ATEN_BITS = 22

# Resample.c writes these two as float literals.
_HAMMING_MEAN = float(np.float32(0.54))
_HAMMING_SWING = float(np.float32(0.46))


@njit
def known(resample: int) -> Any:
    """Whether a filter's code is valid."""
    filter = resample & 7
    if resample < ATEN:
        return 1 <= resample <= 5
    return 1 <= filter <= 3 if resample < ATEN_POINT else resample < 24 and 2 <= filter <= 3


@njit
def _sinc(x: float) -> Any:
    return 1.0 if x == 0.0 else math.sin(x * math.pi) / (x * math.pi)


@njit
def _cubic(a: float, x: float) -> Any:
    """UpSample.h, cubic_convolution1 and 2; at Pillow's ``a``, -0.5, Pillow's order of operations rounds the same."""
    if x < 1.0:
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    return ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a if x < 2.0 else 0.0


@njit
def _filter(resample: int, x: float) -> Any:
    """One of the five kernels at float64 ``x``, every operation in the order of the C source."""
    if resample == LANCZOS:
        return _sinc(x) * _sinc(x / 3) if -3.0 <= x < 3.0 else 0.0
    if resample == BOX:
        return 1.0 if -0.5 < x <= 0.5 else 0.0
    x = abs(x)
    if resample == BILINEAR:
        return 1.0 - x if x < 1.0 else 0.0
    if resample == BICUBIC:
        return _cubic(-0.5, x)
    if x == 0.0:
        return 1.0
    return _sinc(x) * (_HAMMING_MEAN + _HAMMING_SWING * math.cos(x * math.pi)) if x < 1.0 else 0.0


@njit
def _support(resample: int, span: float, size: int) -> Any:
    """Half the width of the filter, in view positions."""
    scale = 1.0 if resample >= ATEN_POINT else max(span / size, 1.0)
    resample &= 7
    if resample == LANCZOS:
        return 3.0 * scale
    if resample == BICUBIC:
        return 2.0 * scale
    return 0.5 * scale if resample == BOX else 1.0 * scale


@njit
def most_taps(resample: int, span: float, size: int) -> Any:
    """The most taps of any output position."""
    return np.int64(math.ceil(_support(resample, span, size))) * 2 + 1


@njit
def _point(resample: int, length: int, size: int, position: int) -> Any:
    """The point of the view that is sampled, without antialiasing: a view position, and the distance beyond it."""
    point = length / size * (position + 0.5) - 0.5
    if point < 0.0 and _reach(resample) == 1:
        point = 0.0
    index: Any = min(np.int64(math.floor(np.float32(point))), length - 1)  # ``floorf`` of a double
    return index, min(max(point - index, 0.0), 1.0)


@njit
def _reach(resample: int) -> Any:
    """Half the number of taps, without antialiasing."""
    return 2 if resample & 7 == BICUBIC else 1


@njit
def taps(resample: int, length: int, begin: float, span: float, size: int, position: int) -> Any:
    """The half-open range of view positions that a resampled position depends on."""
    if resample >= ATEN_POINT:
        index, reach = _point(resample, length, size, position)[0], _reach(resample)
        return max(index - reach + 1, 0), min(index + reach + 1, length)
    support = _support(resample, span, size)
    center = begin + (position + 0.5) * (span / size)
    return max(np.int64(center - support + 0.5), 0), min(np.int64(center + support + 0.5), length)


@njit
def _of_point(resample: int, length: int, size: int, position: int, exact: Any) -> Any:
    """``_of_position`` without antialiasing: coefficients beyond an edge are added to those of the edge.

    The largest coefficient includes intermediate sums.
    """
    start, stop = taps(resample, length, 0.0, length, size, position)
    index, beyond = _point(resample, length, size, position)
    reach, largest, t = _reach(resample), 0.0, 0
    for j in range(2 * reach):
        exact[j] = 0.0
        x = abs(j + 1 - reach - beyond)
        if index - reach + 1 + j <= 0:
            t = 0
        elif index - reach + 1 + j >= length - 1:
            t = stop - start - 1
        exact[t] += _cubic(-0.75, x) if reach == 2 else _filter(BILINEAR, x)
        largest = max(largest, exact[t])
        t += 1
    return start, stop, largest


@njit
def _of_position(resample: int, length: int, begin: float, span: float, size: int, position: int, exact: Any) -> Any:
    """Write the float64 coefficients of a resampled position to ``exact``; return its taps' range and the largest."""
    if resample >= ATEN_POINT:
        return _of_point(resample, length, size, position, exact)
    start, stop = taps(resample, length, begin, span, size, position)
    scale = span / size
    center, shrink = begin + (position + 0.5) * scale, 1.0 / max(scale, 1.0)
    total, largest = 0.0, 0.0
    for t in range(stop - start):
        exact[t] = _filter(resample & 7, (t + start - center + 0.5) * shrink)
        total += exact[t]
    if total != 0.0:
        for t in range(stop - start):
            exact[t] /= total
            largest = max(largest, exact[t])
    return start, stop, largest


@njit
def _bits(resample: int, length: int, size: int, exact: Any) -> Any:
    """The fractional bits of the coefficients of a whole axis, whatever part of it is shown."""
    if resample < ATEN:
        return PILLOW_BITS
    largest = 0.0
    for position in range(size):
        largest = max(largest, _of_position(resample, length, 0.0, length, size, position, exact)[2])
    bits = 0
    while bits < MOST_ATEN_BITS and np.int64(0.5 + largest * (1 << (bits + 1))) < 1 << 15:
        bits += 1
    return bits


@njit
def memory_size(resample: int, span: float, size: int, count: int) -> Any:
    """The bytes of memory that ``compute`` needs."""
    return (most_taps(resample, span, size) * (count + 2) + count * 2) * 4


@njit
def computed(memory: int, most: int, count: int) -> Any:
    """The bounds [count, 2] and coefficients [count, most] that ``compute`` wrote there; ``most``: ``most_taps``."""
    coefficients = carray(pointer(memory + 8 * most), (count, most), np.int32)
    return carray(pointer(memory + 4 * most * (count + 2)), (count, 2), np.int32), coefficients


@njit
def compute(
    resample: int, length: int, begin: float, span: float, size: int, first: int, count: int, memory: int
) -> Any:
    """Compute the coefficients of ``count`` resampled positions from ``first`` on, in memory at an address.

    ``span`` of the ``length`` view positions are resampled, from ``begin`` on.

    Returns ``bounds`` int32 [count, 2], first tap and number of taps; ``coefficients`` int32 [count, most taps], fixed
    point; and their fractional bits. The memory has the float64 coefficients of one position, then the coefficients,
    then the bounds.
    """
    most = most_taps(resample, span, size)
    exact = carray(pointer(memory), (most,), np.float64)
    bounds, coefficients = computed(memory, most, count)
    bits = _bits(resample, length, size, exact)
    for i in range(count):
        start, stop, _ = _of_position(resample, length, begin, span, size, first + i, exact)
        for t in range(stop - start):
            coefficients[i, t] = np.int32((-0.5 if exact[t] < 0.0 else 0.5) + exact[t] * (1 << bits))
        bounds[i, 0] = start
        bounds[i, 1] = stop - start
    return bounds, coefficients, bits


@njit
def computed_bits(
    resample: int, length: int, begin: float, span: float, size: int, first: int, count: int, memory: Any
) -> Any:
    """``compute`` for the host, which reads the results from the memory; return the fractional bits."""
    _, _, bits = compute(resample, length, begin, span, size, first, count, memory.ctypes.data)
    return bits
