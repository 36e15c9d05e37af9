"""Pixels of four bytes, as Pillow stores "RGB", or of three planes, to three bytes each, by numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from accel.system.native.intrinsics import emitted
from accel.system.native.memory import advanced, pointer_to, step
from accel.system.native.simd import load

u32: Any = np.uint32
_BLOCK = 16
_LENGTH, _BUFFERS, _CHILDREN = 0, 5, 6  # words of the Arrow C data interface's ArrowArray


def _pointer_to(kind: Any) -> Any:
    """An intrinsic that makes of an address a pointer to values of a kind."""

    @emitted(types.CPointer(kind), types.int64)
    def pointer(builder: ir.IRBuilder, address: Any) -> Any:
        return builder.inttoptr(address, ir.IntType(kind.bitwidth).as_pointer())

    return pointer


_words, _bytes, _pixels = (_pointer_to(kind) for kind in (types.int64, types.uint8, types.uint32))


@emitted(types.void, None, None, types.int64)
def _pack_block(builder: ir.IRBuilder, source: Any, target: Any, pixel: Any) -> None:
    """Copy the first three bytes of each of 16 four-byte pixels, from number ``pixel`` on."""
    four, three = (builder.mul(pixel, ir.Constant(pixel.type, size)) for size in (4, 3))
    block = load(builder, step(builder, source, four), 4 * _BLOCK, 8)
    block.shuffle([4 * i + c for i in range(_BLOCK) for c in range(3)]).store(step(builder, target, three))


@njit
def _start(address: int, count: int) -> Any:
    """The address of the pixels in the ArrowArray at ``address``; 0 if it is not ``count`` lists of four bytes."""
    array = _words(address)
    if array[_LENGTH] != count or array[_CHILDREN - 2] != 1:
        return 0
    child = _words(_words(array[_CHILDREN])[0])
    return _words(child[_BUFFERS])[1] if child[_LENGTH] == 4 * count else 0


@njit
def pack(address: int, pixels: int, pitch: int, first: int, width: int, packed: Any) -> Any:
    """Fill ``packed`` (three bytes a pixel) with rows of an image whose ArrowArray is at ``address``.

    ``pixels``: the number of the image's pixels; each row has ``width`` pixels, the first row begins at pixel
    ``first``, and each further one ``pitch`` pixels after the one before. False, with nothing written, if the image has
    not these pixels.
    """
    start = _start(address, pixels)
    rows = len(packed) // (3 * width)
    if start == 0 or first + (rows - 1) * pitch + width > pixels:
        return False
    for y in range(rows):
        source, target = _bytes(start + 4 * (first + y * pitch)), advanced(pointer_to(packed), 3 * y * width)
        if width < _BLOCK:
            for i in range(width):
                for c in range(3):
                    target[3 * i + c] = source[4 * i + c]
        else:
            for i in range(0, width - _BLOCK + 1, _BLOCK):
                _pack_block(source, target, i)
            _pack_block(source, target, width - _BLOCK)  # the last block overlaps the one before
    return True


@njit
def luma(address: int, levels: Any) -> Any:
    """Fill ``levels`` with the luma of each pixel (ITU-R 601-2, in Pillow's fixed point: Convert.c, L24).

    False, with nothing written, if the image has another number of pixels.
    """
    start = _start(address, len(levels))
    if start == 0:
        return False
    source, target = _pixels(start), pointer_to(levels)
    for i in range(len(levels)):
        red, green, blue = source[i] & u32(255), (source[i] >> u32(8)) & u32(255), (source[i] >> u32(16)) & u32(255)
        target[i] = (red * u32(19595) + green * u32(38470) + blue * u32(7471) + u32(0x8000)) >> u32(16)
    return True


@njit
def of_planes(planes: Any, places: Any, pixels: Any) -> Any:
    """Fill ``pixels`` [images, height, width, 3] with the images at ``places`` of ``planes`` [n, 3, height, width].

    False if a place is outside.
    """
    count, size = planes.shape[0], planes.shape[2] * planes.shape[3]
    for i in range(len(places)):
        if not 0 <= places[i] < count:
            return False
        source, target = advanced(pointer_to(planes), 3 * size * places[i]), advanced(pointer_to(pixels), 3 * size * i)
        for p in range(size):
            target[3 * p] = source[p]
            target[3 * p + 1] = source[size + p]
            target[3 * p + 2] = source[2 * size + p]
    return True
