"""Warps of pixels [height, width, channels]: Pillow's affine and perspective transforms, and the transpose.

Places and interpolation follow Pillow's Geometry.c operation for operation, in the same precision: nearest affine
in 16.16 fixed point, everything else in double. Channels share places and weights.

This file calls no compiled function of another one: numba's cache notices no change there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from .effect_colour import COMPILE, PIXELS, RESULT, array

_F64 = np.float64
_FILL, _NUMBERS = array(types.uint8, 1), array(types.float64, 1)


@njit
def _fixed(value: float) -> Any:
    return np.int64(np.floor(value * 65536.0 + 0.5))


@njit
def _inside(start: int, step: int, count: int, stop: int) -> Any:
    """The half-open range of n in 0 .. count - 1 with ``0 <= start + step * n < stop``."""
    if step == 0:
        return (0, count) if 0 <= start < stop else (0, 0)
    if step < 0:  # mirrored: 0 <= (stop - 1 - start) - step * n < stop
        start, step = stop - 1 - start, -step
    first, last = -(start // step), -((start - stop) // step)
    first, last = max(first, 0), min(last, count)
    return (first, last) if first < last else (0, 0)


@njit(types.void(PIXELS, _NUMBERS, _FILL, RESULT), **COMPILE)
def affine_nearest(src: Any, matrix: Any, fill: Any, out: Any) -> None:
    """Nearest affine in fixed point (Geometry.c, affine_fixed); output pixels from outside show ``fill``."""
    height, width, channels = src.shape
    rows, columns = out.shape[0], out.shape[1]
    flat = src.reshape(-1)
    dx, dy = _fixed(matrix[0]), _fixed(matrix[3])
    down_x, down_y = _fixed(matrix[1]), _fixed(matrix[4])
    start_x = _fixed(matrix[2] + matrix[0] * 0.5 + matrix[1] * 0.5)
    start_y = _fixed(matrix[5] + matrix[3] * 0.5 + matrix[4] * 0.5)
    for y in range(rows):
        line = out[y].reshape(-1)
        first, last = _inside(start_x, dx, columns, width << 16)
        first_y, last_y = _inside(start_y, dy, columns, height << 16)
        first, last = max(first, first_y), min(last, last_y)
        first, last = (first, last) if first < last else (0, 0)
        at_x, at_y = start_x + dx * first, start_y + dy * first
        if channels == 1:
            line[:first] = fill[0]
            for x in range(first, last):
                line[x] = flat[np.uint64((at_y >> 16) * width + (at_x >> 16))]
                at_x, at_y = at_x + dx, at_y + dy
            line[last:] = fill[0]
        else:
            red, green, blue = fill[0], fill[1], fill[2]
            for x in range(first):
                line[3 * x], line[3 * x + 1], line[3 * x + 2] = red, green, blue
            for x in range(first, last):
                at, to = np.uint64(((at_y >> 16) * width + (at_x >> 16)) * 3), np.uint64(3 * x)
                line[to] = flat[at]
                line[to + np.uint64(1)] = flat[at + np.uint64(1)]
                line[to + np.uint64(2)] = flat[at + np.uint64(2)]
                at_x, at_y = at_x + dx, at_y + dy
            for x in range(last, columns):
                line[3 * x], line[3 * x + 1], line[3 * x + 2] = red, green, blue
        start_x, start_y = start_x + down_x, start_y + down_y


@njit(inline="always")
def _clip(position: int, length: int) -> Any:
    return min(max(position, 0), length - 1)


@njit(inline="always")
def _line(one: Any, two: Any, share: float) -> Any:
    return _F64(one) + (_F64(two) - _F64(one)) * share


@njit(inline="always")
def _cubic(a: Any, b: Any, c: Any, d: Any, share: float) -> Any:
    one, two, three, four = _F64(a), _F64(b), _F64(c), _F64(d)
    p2, p3, p4 = -one + three, 2 * (one - two) + three - four, -one + two - three + four
    return two + share * (p2 + share * (p3 + share * p4))


@njit(inline="always")
def _bilinear(
    flat: Any, height: int, width: int, channels: int, x_in: float, y_in: float, target: Any, to: int
) -> None:
    x_in, y_in = x_in - 0.5, y_in - 0.5
    x, y = np.int64(np.floor(x_in)), np.int64(np.floor(y_in))
    dx, dy = x_in - x, y_in - y
    left, right = _clip(x, width) * channels, _clip(x + 1, width) * channels
    upper = _clip(y, height) * width * channels
    lower = (y + 1 if y + 1 < height else _clip(y, height)) * width * channels
    for c in range(channels):
        above = _line(flat[np.uint64(upper + left + c)], flat[np.uint64(upper + right + c)], dx)
        below = _line(flat[np.uint64(lower + left + c)], flat[np.uint64(lower + right + c)], dx)
        target[np.uint64(to + c)] = np.uint8(np.int32(_line(above, below, dy)))


@njit(inline="always")
def _cubic_row(flat: Any, at: int, x0: int, x1: int, x2: int, x3: int, share: float) -> Any:
    a, b = flat[np.uint64(at + x0)], flat[np.uint64(at + x1)]
    return _cubic(a, b, flat[np.uint64(at + x2)], flat[np.uint64(at + x3)], share)


@njit(inline="always")
def _bicubic(flat: Any, height: int, width: int, channels: int, x_in: float, y_in: float, target: Any, to: int) -> None:
    x_in, y_in = x_in - 0.5, y_in - 0.5
    x, y = np.int64(np.floor(x_in)), np.int64(np.floor(y_in))
    dx, dy = x_in - x, y_in - y
    x0, x1 = _clip(x - 1, width) * channels, _clip(x, width) * channels
    x2, x3 = _clip(x + 1, width) * channels, _clip(x + 2, width) * channels
    pitch = width * channels
    y0 = _clip(y - 1, height)
    y1 = y if 0 <= y < height else y0
    y2 = y + 1 if 0 <= y + 1 < height else y1
    y3 = y + 2 if 0 <= y + 2 < height else y2
    for c in range(channels):
        v0 = _cubic_row(flat, y0 * pitch + c, x0, x1, x2, x3, dx)
        v1 = _cubic_row(flat, y1 * pitch + c, x0, x1, x2, x3, dx)
        v2 = _cubic_row(flat, y2 * pitch + c, x0, x1, x2, x3, dx)
        v3 = _cubic_row(flat, y3 * pitch + c, x0, x1, x2, x3, dx)
        value = _cubic(v0, v1, v2, v3, dy)
        target[np.uint64(to + c)] = np.uint8(np.int32(min(max(value, 0.0), 255.0)))


@njit(types.void(PIXELS, _NUMBERS, types.int64, _FILL, RESULT), **COMPILE)
def warp(src: Any, a: Any, resample: int, fill: Any, out: Any) -> None:
    """Each output pixel at its place in the input (Geometry.c, ImagingGenericTransform), or ``fill``.

    ``a``: six coefficients of an affine transform, or eight of a perspective one. ``resample``: Pillow's code,
    0 nearest, 2 bilinear, 3 bicubic.
    """
    height, width, channels = src.shape
    flat = src.reshape(-1)
    for y in range(out.shape[0]):
        line = out[y].reshape(-1)
        y_at = y + 0.5
        for x in range(out.shape[1]):
            x_at = x + 0.5
            x_in, y_in = a[0] * x_at + a[1] * y_at + a[2], a[3] * x_at + a[4] * y_at + a[5]
            if a.shape[0] == 8:
                depth = a[6] * x_at + a[7] * y_at + 1
                x_in, y_in = x_in / depth, y_in / depth
            if not (0 <= x_in < width and 0 <= y_in < height):
                for c in range(channels):
                    line[x * channels + c] = fill[c]
            elif resample == 2:
                if channels == 3:
                    _bilinear(flat, height, width, 3, x_in, y_in, line, x * 3)
                else:
                    _bilinear(flat, height, width, 1, x_in, y_in, line, x)
            elif resample == 3:
                if channels == 3:
                    _bicubic(flat, height, width, 3, x_in, y_in, line, x * 3)
                else:
                    _bicubic(flat, height, width, 1, x_in, y_in, line, x)
            else:
                at = (np.int64(y_in) * width + np.int64(x_in)) * channels
                for c in range(channels):
                    line[x * channels + c] = flat[at + c]


@njit(types.void(PIXELS, RESULT), **COMPILE)
def transpose(src: Any, out: Any) -> None:
    """Rows become columns; in blocks, so that both sides stay in the cache."""
    height, width, channels = src.shape
    for top in range(0, height, 16):
        for left in range(0, width, 16):
            for y in range(top, min(top + 16, height)):
                for x in range(left, min(left + 16, width)):
                    for c in range(channels):
                        out[x, y, c] = src[y, x, c]
