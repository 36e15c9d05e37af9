"""Neighbourhood effects on pixels [height, width, channels]: Pillow's sharpness."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from accel.backends.shared.numba_memory import flattened

_F32, _I32 = np.float32, np.int32


@njit(error_model="numpy")
def sharpen(src: Any, factor: Any, out: Any) -> None:
    """ImageEnhance.Sharpness: a blend with the image smoothed by (1 1 1, 1 5 1, 1 1 1) / 13, its border kept.

    Filter.c sums in float32; no sum lies within 1/26 of where it is cut, so integers give the same.
    """
    height, width, channels = src.shape
    pitch = width * channels
    flat, result = flattened(src), flattened(out)
    for i in range(flat.shape[0]):
        result[i] = flat[i]
    if height < 3 or width < 3:
        return
    sums = np.empty(pitch, np.int32)
    count = pitch - 2 * channels
    for y in range(1, height - 1):
        above, row, below = flat[(y - 1) * pitch :][:pitch], flat[y * pitch :][:pitch], flat[(y + 1) * pitch :][:pitch]
        for i in range(pitch):
            sums[i] = _I32(above[i]) + _I32(row[i]) + _I32(below[i])
        left, right = sums[:count], sums[2 * channels :]
        middle, source, target = sums[channels:], row[channels:], result[y * pitch + channels :]
        for i in range(count):
            value = _I32(source[i])
            total = left[i] + middle[i] + right[i] + _I32(4) * value
            smooth = ((_I32(2) * total + _I32(13)) * _I32(20165)) >> _I32(19)  # (2 total + 13) // 26
            blended = _F32(smooth) + factor * _F32(value - smooth)
            target[i] = np.uint8(_I32(min(max(blended, _F32(0)), _F32(255))))
