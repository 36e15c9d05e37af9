"""Warps of pixels [height, width, channels]: Pillow's affine and perspective transforms, and the transpose.

Places and interpolation follow Pillow's Geometry.c operation for operation, in the same precision: nearest affine
in 16.16 fixed point, everything else in double. Channels share places and weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils

from accel.backends.cpu.simd import copy_bytes
from accel.backends.shared.numba_memory import flattened
from accel.system.native.intrinsics import emitted, load, splat, store


@njit
def _fixed(value: float) -> Any:
    return np.int64(np.floor(value * 65536.0 + 0.5))


@njit
def _inside(start: int, step: int, count: int, stop: int) -> Any:
    """The half-open range of n in 0 .. count - 1 with ``0 <= start + step * n < stop``; it may end before it begins."""
    if step == 0:
        return (0, count) if 0 <= start < stop else (0, 0)
    if step < 0:  # mirrored: 0 <= (stop - 1 - start) - step * n < stop
        start, step = stop - 1 - start, -step
    return max(-(start // step), 0), min(-((start - stop) // step), count)


@njit(error_model="numpy")
def affine_nearest(src: Any, matrix: Any, fill: Any, out: Any) -> None:
    """Nearest affine in fixed point (Geometry.c, affine_fixed); output pixels from outside show ``fill``."""
    height, width, channels = src.shape
    rows, columns = out.shape[0], out.shape[1]
    flat = flattened(src)
    red, green, blue = fill[0], fill[min(1, channels - 1)], fill[channels - 1]
    dx, dy = _fixed(matrix[0]), _fixed(matrix[3])
    down_x, down_y = _fixed(matrix[1]), _fixed(matrix[4])
    start_x = _fixed(matrix[2] + matrix[0] * 0.5 + matrix[1] * 0.5)
    start_y = _fixed(matrix[5] + matrix[3] * 0.5 + matrix[4] * 0.5)
    for y in range(rows):
        line = flattened(out[y])
        first, last = _inside(start_x, dx, columns, width << 16)
        first_y, last_y = _inside(start_y, dy, columns, height << 16)
        first, last = max(first, first_y), min(last, last_y)
        first, last = (first, last) if first < last else (0, 0)
        at_x, at_y = start_x + dx * first, start_y + dy * first
        if channels == 1:
            line[:first], line[last:] = fill[0], fill[0]
            for x in range(first, last):
                line[x] = flat[np.uint64((at_y >> 16) * width + (at_x >> 16))]
                at_x, at_y = at_x + dx, at_y + dy
        else:
            for start, stop in ((0, first), (last, columns)):
                for x in range(start, stop):
                    line[3 * x], line[3 * x + 1], line[3 * x + 2] = red, green, blue
            for x in range(first, last):
                at, to = np.uint64(((at_y >> 16) * width + (at_x >> 16)) * 3), np.uint64(3 * x)
                line[to] = flat[at]
                line[to + np.uint64(1)] = flat[at + np.uint64(1)]
                line[to + np.uint64(2)] = flat[at + np.uint64(2)]
                at_x, at_y = at_x + dx, at_y + dy
        start_x, start_y = start_x + down_x, start_y + down_y


# -- interpolation: all channels of a pixel as one vector of doubles -----------------------------------------------

_LANES = 4
_BYTE, _WORD, _DOUBLE = ir.IntType(8), ir.IntType(32), ir.DoubleType()
_DOUBLES = ir.VectorType(_DOUBLE, _LANES)


def _constant(value: float) -> Any:
    return ir.Constant(_DOUBLES, [value] * _LANES)


def _pixel(builder: Any, address: Any) -> Any:
    """Load four bytes as doubles."""
    loaded = load(builder, address, ir.VectorType(_BYTE, _LANES))
    return builder.uitofp(builder.zext(loaded, ir.VectorType(_WORD, _LANES)), _DOUBLES)


def _put(builder: Any, value: Any, address: Any) -> None:
    """Store the first three of four doubles, truncated to integers, as bytes."""
    words = builder.fptosi(value, ir.VectorType(_WORD, _LANES))
    for lane in range(3):
        byte = builder.trunc(builder.extract_element(words, ir.Constant(_WORD, lane)), _BYTE)
        store(builder, byte, builder.add(address, ir.Constant(address.type, lane)))


def _linear(builder: Any, taps: list[Any], share: Any) -> Any:
    one, two = taps
    return builder.fadd(one, builder.fmul(builder.fsub(two, one), share))


def _cubic(builder: Any, taps: list[Any], share: Any) -> Any:
    """Geometry.c's BICUBIC, with its order of additions."""
    a, b, c, d = taps
    minus_a = builder.fneg(a)
    p2 = builder.fadd(minus_a, c)
    p3 = builder.fsub(builder.fadd(builder.fmul(_constant(2.0), builder.fsub(a, b)), c), d)
    p4 = builder.fadd(builder.fsub(builder.fadd(minus_a, b), c), d)
    inner = builder.fadd(p3, builder.fmul(share, p4))
    return builder.fadd(b, builder.fmul(share, builder.fadd(p2, builder.fmul(share, inner))))


@emitted(types.void, None, None, types.float64, types.float64, types.int64)
def _interpolate(builder: Any, rows: Any, columns: Any, dx: Any, dy: Any, to: Any) -> None:
    """Interpolate a pixel, to ``to``. ``rows``: two or four addresses; ``columns``: as many byte offsets."""
    dx, dy = splat(builder, dx, _LANES), splat(builder, dy, _LANES)
    rows, columns = cgutils.unpack_tuple(builder, rows), cgutils.unpack_tuple(builder, columns)
    mixed = _linear if len(rows) == 2 else _cubic
    lines = [mixed(builder, [_pixel(builder, builder.add(row, column)) for column in columns], dx) for row in rows]
    value = mixed(builder, lines, dy)
    for limit, worse in ((0.0, "<"), (255.0, ">")) if mixed is _cubic else ():
        bound = _constant(limit)
        value = builder.select(builder.fcmp_ordered(worse, value, bound), bound, value)
    _put(builder, value, to)


@njit(inline="always")
def _clip(position: int, length: int) -> Any:
    return min(max(position, 0), length - 1)


@njit
def _interpolate_at(base: int, height: int, width: int, x_in: float, y_in: float, resample: int, to: int) -> None:
    """Interpolate an image of pixels of three bytes at a place, to ``to``."""
    pitch, left, top = width * 3, np.int64(np.floor(x_in)), np.int64(np.floor(y_in))
    row, next_row = base + _clip(top, height) * pitch, base + _clip(top + 1, height) * pitch
    column, next_column = _clip(left, width) * 3, _clip(left + 1, width) * 3
    if resample == 2:
        _interpolate((row, next_row), (column, next_column), x_in - left, y_in - top, to)
    else:
        rows = base + _clip(top - 1, height) * pitch, row, next_row, base + _clip(top + 2, height) * pitch
        columns = _clip(left - 1, width) * 3, column, next_column, _clip(left + 2, width) * 3
        _interpolate(rows, columns, x_in - left, y_in - top, to)


@njit
def _copy_line(line: Any, channels: int, target: Any) -> None:
    """Copy pixels of three bytes to a row of the result."""
    if channels == 3:
        for i in range(target.shape[0]):
            target[i] = line[i]
    else:
        for x in range(target.shape[0]):
            target[x] = line[3 * x]


@njit
def _warp_rows(image: Any, height: int, width: int, a: Any, resample: int, fill: Any, line: Any, out: Any) -> None:
    """``warp`` for pixels of three bytes, row by row through ``line``, which has room for one row."""
    channels = out.shape[2]
    base, made = image.ctypes.data, line.ctypes.data
    for y in range(out.shape[0]):
        y_at = y + 0.5
        for x in range(out.shape[1]):
            x_at = x + 0.5
            x_in, y_in = a[0] * x_at + a[1] * y_at + a[2], a[3] * x_at + a[4] * y_at + a[5]
            if a.shape[0] == 8:
                depth = a[6] * x_at + a[7] * y_at + 1
                x_in, y_in = x_in / depth, y_in / depth
            if not (0 <= x_in < width and 0 <= y_in < height):
                for c in range(3):
                    line[np.uint64(3 * x + c)] = fill[min(c, channels - 1)]
            elif resample:
                _interpolate_at(base, height, width, x_in - 0.5, y_in - 0.5, resample, made + 3 * x)
            else:
                at = (np.int64(y_in) * width + np.int64(x_in)) * 3
                for c in range(3):
                    line[np.uint64(3 * x + c)] = image[np.uint64(at + c)]
        _copy_line(line, channels, flattened(out[y]))


@njit(error_model="numpy")
def warp(src: Any, a: Any, resample: int, fill: Any, out: Any) -> None:
    """Interpolate each output pixel at its place in the input (Geometry.c, ImagingGenericTransform), or ``fill`` it.

    ``a``: six coefficients of an affine transform, or eight of a perspective one. ``resample``: Pillow's code,
    0 nearest, 2 bilinear, 3 bicubic.
    """
    height, width, channels = src.shape
    # a copy with one byte more, as pixels of three bytes are read as four; grey ones are repeated three times
    image = np.empty(height * width * 3 + 1, np.uint8)
    flat = flattened(src)
    if channels == 3:
        for i in range(flat.shape[0]):
            image[i] = flat[i]
    else:
        for i in range(height * width):
            image[3 * i] = image[3 * i + 1] = image[3 * i + 2] = flat[i]
    _warp_rows(image, height, width, a, resample, fill, np.empty(out.shape[1] * 3, np.uint8), out)


@njit
def _copy_column(source: int, pitch: int, target: int, channels: int, top: int, bottom: int, last: int) -> None:
    """Copy the pixels of rows ``top`` to before ``bottom`` of a column, ``last`` being the last row, to a row."""
    if channels == 1:
        for y in range(top, bottom):
            copy_bytes(source + y * pitch, target + y, 1)
        return
    for y in range(top, min(bottom, last)):
        copy_bytes(source + y * pitch, target + 3 * y, 4)
    if bottom > last:
        copy_bytes(source + last * pitch, target + 3 * last, 3)


@njit(error_model="numpy")
def transpose(src: Any, out: Any) -> None:
    """Transpose, in blocks, so that both sides stay in the cache.

    Pixels of three bytes are copied as four except in the last row; the pixel below overwrites the fourth.
    """
    height, width, channels = src.shape
    source, target = src.ctypes.data, out.ctypes.data
    for top in range(0, height, 16):
        for left in range(0, width, 16):
            for x in range(left, min(left + 16, width)):
                at, to = source + x * channels, target + x * height * channels
                _copy_column(at, width * channels, to, channels, top, min(top + 16, height), height - 1)
