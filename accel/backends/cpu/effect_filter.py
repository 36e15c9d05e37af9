"""Neighbourhood effects on pixels [height, width, channels]: Pillow's sharpness, and its box blur."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from accel.backends.cpu.simd import LANES, copy_bytes, transpose16
from accel.backends.shared.numba_memory import flattened

_F32, _I32, _U32 = np.float32, np.int32, np.uint32


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


@njit(error_model="numpy")
def _blurred(source: Any, target: Any, sums: Any, count: int, radius: int, inner: Any, outer: Any) -> None:
    """Box blur: ``target[k]`` is a mean of ``source[k - radius - 1]`` to ``source[k + radius + 1]``, rows of values.

    As BoxBlur.c: ends are repeated outwards; weights have 24 bits after the binary point. ``sums``: a workspace.
    """
    last, size = count - 1, sums.shape[0]
    first, end = source[0], source[last]
    for i in range(size):  # the window around position -1
        sums[i] = _U32(first[i]) * _U32(radius + 1) + _U32(end[i]) * _U32(max(radius - last, 0))
    for k in range(min(radius, last)):
        row = source[k]
        for i in range(size):
            sums[i] += _U32(row[i])
    for k in range(count):
        behind, ahead = source[max(k - radius - 1, 0)], source[min(k + radius, last)]
        beyond, result = source[min(k + radius + 1, last)], target[k]
        for i in range(size):
            left = _U32(behind[i])
            total = sums[i] + _U32(ahead[i]) - left
            sums[i] = total
            bulk = total * inner + (left + _U32(beyond[i])) * outer
            result[i] = np.uint8((bulk + _U32(1 << 23)) >> _U32(24))


@njit(error_model="numpy")
def _repeated(strips: Any, sums: Any, count: int, passes: int, radius: int, inner: int, outer: int) -> Any:
    """Blur ``strips[0]`` ``passes`` times; return which of the two strips has the result."""
    for n in range(passes):
        _blurred(strips[n % 2], strips[1 - n % 2], sums, count, radius, _U32(inner), _U32(outer))
    return passes % 2


@njit(error_model="numpy")
def blur_down(src: Any, passes: int, radius: int, inner: int, outer: int, strips: Any, out: Any) -> None:
    """Box blurs along the columns. ``strips``: a workspace, [2, height, bytes]; ``out`` may be ``src``."""
    height, pitch, size = src.shape[0], src.shape[1] * src.shape[2], strips.shape[2]
    sums = np.empty(size, np.uint32)
    source, target, strip = src.ctypes.data, out.ctypes.data, strips.ctypes.data
    for left in range(0, pitch, size):
        count = min(size, pitch - left)
        for y in range(height):
            copy_bytes(source + y * pitch + left, strip + y * size, count)
        done = strip + _repeated(strips, sums, height, passes, radius, inner, outer) * height * size
        for y in range(height):
            copy_bytes(done + y * size, target + y * pitch + left, count)


@njit(error_model="numpy")
def blur_across(src: Any, passes: int, radius: int, inner: int, outer: int, strips: Any, lines: Any, out: Any) -> None:
    """Box blurs along the rows, 16 of which at a time are turned into columns.

    ``strips`` [2, more than width + 15, 16 * channels] and ``lines`` [16, whole vectors]: workspaces; ``out`` may be
    ``src``.
    """
    height, width, pitch, room = src.shape[0], src.shape[1], src.shape[1] * src.shape[2], lines.shape[1]
    sums = np.empty(strips.shape[2], np.uint32)
    source, target, strip, line = src.ctypes.data, out.ctypes.data, strips.ctypes.data, lines.ctypes.data
    for top in range(0, height, LANES):
        rows = min(LANES, height - top)
        for y in range(rows):
            copy_bytes(source + (top + y) * pitch, line + y * room, pitch)
        for byte in range(0, pitch, LANES):
            transpose16(line + byte, room, strip + byte * LANES, LANES)
        which = _repeated(strips, sums, width, passes, radius, inner, outer)
        done = strip + which * strips.shape[1] * strips.shape[2]
        for byte in range(0, pitch, LANES):
            transpose16(done + byte * LANES, LANES, line + byte, room)
        for y in range(rows):
            copy_bytes(line + y * room, target + (top + y) * pitch, pitch)
