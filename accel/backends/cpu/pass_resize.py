"""An 8-bit resize as two weighted sums of rows (Pillow src/libImaging/Resample.c, ATen UpSampleKernel.cpp).

The columns are resampled first, rounded to uint8, then the rows.  The second pass is a weighted sum
of whole rows and runs along contiguous bytes.  The first becomes the same sum by transposing: 16 rows at a time
are turned so that one byte column of the image is 16 contiguous bytes, summed, and turned back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from accel.backends.cpu import pass_fields as ps
from accel.backends.cpu.simd import LANES, copy_bytes, transpose16, weighted_sum16, weighted_sum48, weighted_sum64
from accel.backends.shared.coefficient_kernels import computed


@njit
def padded(count: int) -> Any:
    """``count`` bytes, rounded up to whole vectors."""
    return (count + LANES - 1) // LANES * LANES


@njit
def copy_rows(source: int, stride: int, n_rows: int, n_bytes: int, target: int, target_stride: int) -> None:
    """Copy an image's rows of ``n_bytes`` to ``target``, where they lie ``target_stride`` bytes apart."""
    for y in range(n_rows):
        copy_bytes(source + y * stride, target + y * target_stride, n_bytes)


@njit
def resize_columns(state: Any, source: int, stride: int, n_rows: int, target: int) -> None:
    """Resample every row of an image by the coefficients of a pass's state (``pass_fields``).

    ``source``: address of ``n_rows >= 16`` rows of at least 16 bytes, ``stride`` bytes apart (either sign).  The result
    has rows of MIDDLE_WIDTH bytes.
    """
    bounds, _ = computed(state[ps.COL_MEMORY], state[ps.COL_MOST], state[ps.SHOWN_COLS])
    first, step, channels, shift = state[ps.FIRST], state[ps.STEP], state[ps.CHANNELS], state[ps.COL_SHIFT]
    n_bytes, pitch, tile, sums = state[ps.WIDTH], state[ps.MIDDLE_WIDTH], state[ps.TILE], state[ps.SUMS]
    pixel = LANES * channels
    coefficients_at, coefficients_stride = state[ps.COL_MEMORY] + 8 * state[ps.COL_MOST], 4 * state[ps.COL_MOST]
    for y in range(0, n_rows, LANES):
        row = min(y, n_rows - LANES)  # the last tile and the last block overlap the ones before
        for x in range(0, n_bytes, LANES):
            byte = min(x, n_bytes - LANES)
            transpose16(source + row * stride + byte, stride, tile + byte * LANES, LANES)
        for i in range(bounds.shape[0]):
            start = tile + (first + step * bounds[i, 0]) * pixel
            coefficient, taps, total = coefficients_at + i * coefficients_stride, bounds[i, 1], sums + i * pixel
            if channels == 3:
                weighted_sum48(start, step * pixel, coefficient, taps, shift, total)
            elif channels == 1:
                weighted_sum16(start, step * pixel, coefficient, taps, shift, total)
            else:
                weighted_sum64(start, step * pixel, coefficient, taps, shift, total)
        for x in range(0, bounds.shape[0] * channels, LANES):
            transpose16(sums + x * LANES, LANES, target + row * pitch + x, pitch)


@njit
def resize_row(
    source: int, stride: int, n_bytes: int, coefficients: Any, i: int, taps: int, shift: int, target: int
) -> None:
    """Compute an output row: the sum of ``taps`` rows of ``n_bytes >= 16`` bytes, weighted by ``coefficients[i]``."""
    done, coefficient = 0, np.int64(coefficients.ctypes.data) + i * coefficients.shape[1] * coefficients.itemsize
    while done + 4 * LANES <= n_bytes:
        weighted_sum64(source + done, stride, coefficient, taps, shift, target + done)
        done += 4 * LANES
    while done < n_bytes:
        byte = min(done, n_bytes - LANES)
        weighted_sum16(source + byte, stride, coefficient, taps, shift, target + byte)
        done = byte + LANES
