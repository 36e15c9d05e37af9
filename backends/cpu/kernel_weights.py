"""Pillow's resampling weights, bit for bit (Pillow src/libImaging/Resample.c)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import carray, njit

from .vector import PRECISION_BITS, pointer

LANCZOS, BILINEAR, BICUBIC, BOX, HAMMING = 1, 2, 3, 4, 5

# Resample.c writes these two as float literals.
_HAMMING_MEAN = float(np.float32(0.54))
_HAMMING_SWING = float(np.float32(0.46))


@njit
def _sinc(x: float) -> Any:
    if x == 0.0:
        return 1.0
    x = x * math.pi
    return math.sin(x) / x


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
        if x < 1.0:
            return ((-0.5 + 2.0) * x - (-0.5 + 3.0)) * x * x + 1
        return (((x - 5) * x + 8) * x - 4) * -0.5 if x < 2.0 else 0.0
    if x == 0.0:
        return 1.0
    if x >= 1.0:
        return 0.0
    x = x * math.pi
    return math.sin(x) / x * (_HAMMING_MEAN + _HAMMING_SWING * math.cos(x))


@njit
def _support(resample: int, length: int, size: int) -> Any:
    """Half the width of the filter, in view positions."""
    scale = max(length / size, 1.0)
    if resample == LANCZOS:
        return 3.0 * scale
    if resample == BICUBIC:
        return 2.0 * scale
    return 0.5 * scale if resample == BOX else 1.0 * scale


@njit
def _most_taps(resample: int, length: int, size: int) -> Any:
    """No output position has more taps than this."""
    return np.int64(math.ceil(_support(resample, length, size))) * 2 + 1


@njit
def taps(resample: int, length: int, size: int, position: int) -> Any:
    """The half-open range of view positions that one resampled position is made of."""
    support = _support(resample, length, size)
    center = (position + 0.5) * (length / size)
    return max(np.int64(center - support + 0.5), 0), min(np.int64(center + support + 0.5), length)


@njit
def weights_size(resample: int, length: int, size: int, count: int) -> Any:
    """The bytes of memory that ``weigh`` needs."""
    return (_most_taps(resample, length, size) * (count + 2) + count * 2) * 4


@njit
def weigh(resample: int, length: int, size: int, first: int, count: int, memory: int) -> Any:
    """The weights of ``count`` resampled positions from ``first`` on, in memory at that address.

    Returns ``bounds`` int32 [count, 2], first tap and number of taps, and ``weights`` int32 [count, most taps], fixed
    point with ``PRECISION_BITS`` bits.
    """
    most = _most_taps(resample, length, size)
    exact = carray(pointer(memory), (most,), np.float64)
    weights = carray(pointer(memory + 8 * most), (count, most), np.int32)
    bounds = carray(pointer(memory + 4 * most * (count + 2)), (count, 2), np.int32)
    scale = length / size
    shrink = 1.0 / max(scale, 1.0)
    for i in range(count):
        center = (first + i + 0.5) * scale
        start, stop = taps(resample, length, size, first + i)
        total = 0.0
        for t in range(stop - start):
            exact[t] = _filter(resample, (t + start - center + 0.5) * shrink)
            total += exact[t]
        for t in range(stop - start):
            weight = exact[t] / total if total != 0.0 else exact[t]
            weights[i, t] = np.int32((-0.5 if weight < 0.0 else 0.5) + weight * (1 << PRECISION_BITS))
        bounds[i, 0] = start
        bounds[i, 1] = stop - start
    return bounds, weights
