"""Sixteen pixels at a time to the output, where arithmetic can stand in for the value table.

A table look-up takes one byte at a time.  Two kinds of table need none: the identity, and ToTensor with Normalize,
``(v / 255 - mean) / std`` in float32.  The second is computed with each division as a multiplication by a
reciprocal of twice the precision.  None of this is taken on trust: ``stands_in`` compares all 256 values of every
channel with the table, on every call.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import carray, njit, types
from numba.extending import intrinsic

from .vector import LANES, lanes_of, load, pointer, store

PROOF_SIZE = 2 * 256 * 4 * 4
"""The bytes of memory that ``stands_in`` needs."""

_FLOAT = ir.FloatType()
_FLOATS = ir.VectorType(_FLOAT, LANES)
NO_FACTORS = np.zeros((0, 4), np.float32)


def _reciprocal(divisor: np.float32) -> tuple[np.float32, np.float32]:
    """1 / divisor as the sum of two float32."""
    exact = 1.0 / float(divisor)
    high = np.float32(exact)
    return high, np.float32(exact - float(high))


def _near(value: float) -> npt.NDArray[np.float32]:
    """Zero, and the five float32 around ``value``."""
    bits = np.float32(value).view(np.int32) + np.arange(-2, 3, dtype=np.int32)
    return np.append(bits.view(np.float32), np.float32(0))


@functools.lru_cache(maxsize=64)
def factors(table: bytes, channels: int) -> npt.NDArray[np.float32]:
    """Factors float32 [5, 4] that may reproduce a float32 table, [0, 4] where none are found.

    Rows: the two parts of 1 / 255, the mean, the two parts of 1 / std; one column per channel.  A straight line
    through the table gives mean and std to within a few units in the last place.
    """
    result = np.zeros((5, 4), np.float32)
    scaled = np.arange(256, dtype=np.float32) / np.float32(255)
    for c, values in enumerate(np.frombuffer(table, np.float32).reshape(channels, 256)):
        if not np.isfinite(values).all() or values[0] == values[255]:
            return NO_FACTORS
        slope, intercept = np.polyfit(scaled.astype(np.float64), values.astype(np.float64), 1)
        with np.errstate(all="ignore"):
            means, stds = _near(-intercept / slope)[:, None, None], _near(1 / slope)[:, None]
            fits = np.argwhere((((scaled - means) / stds) == values).all(axis=-1))
        if not len(fits):
            return NO_FACTORS
        mean, std = means[fits[0, 0], 0, 0], stds[fits[0, 1], 0]
        result[:, c] = (*_reciprocal(np.float32(255)), mean, *_reciprocal(std))
    return result


def _normalised(builder: Any, values: Any, factors: Any, channels: list[int]) -> Any:
    """``(v / 255 - mean) / std`` of 16 bytes; ``channels`` names the channel of each."""
    name = f"llvm.fmuladd.v{LANES}f32"
    fmuladd = builder.module.declare_intrinsic(name, (), ir.FunctionType(_FLOATS, [_FLOATS] * 3))
    rows = []
    for i in range(5):
        row = load(builder, builder.add(factors, ir.Constant(factors.type, 16 * i)), ir.VectorType(_FLOAT, 4))
        rows.append(builder.shuffle_vector(row, row, lanes_of(channels)))
    scale, scale_rest, mean, inverse, inverse_rest = rows
    wide = builder.sitofp(builder.zext(values, ir.VectorType(ir.IntType(32), LANES)), _FLOATS)
    wide = builder.call(fmuladd, [wide, scale, builder.fmul(wide, scale_rest)])
    wide = builder.fsub(wide, mean)
    return builder.call(fmuladd, [wide, inverse, builder.fmul(wide, inverse_rest)])


def _block(channels: int, *, planar: bool, mirrored: bool) -> Any:
    """The code for one block of 16 pixels of ``channels`` bytes."""
    pixels = [(x, c) for x in range(LANES) for c in range(channels)]
    if planar:
        pixels.sort(key=lambda pixel: pixel[1])
    places = [(LANES - 1 - x if mirrored else x) * channels + c for x, c in pixels]

    @intrinsic
    def block(typing: Any, source: Any, factors: Any, target: Any, distance: Any, kind: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            source, factors, target, distance, _ = args
            data = load(builder, source, ir.VectorType(ir.IntType(8), LANES * channels))
            for i in range(channels):
                part = slice(LANES * i, LANES * (i + 1))
                values = builder.shuffle_vector(data, data, lanes_of(places[part]))
                if kind.dtype == types.uint32:
                    values = _normalised(builder, values, factors, [c for _, c in pixels[part]])
                if kind.dtype in (types.uint8, types.uint32):
                    store(builder, values, target)
                target = builder.add(target, distance)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64, types.int64, kind), generate

    return block


_planar3, _planar3_mirrored = _block(3, planar=True, mirrored=False), _block(3, planar=True, mirrored=True)
_pixels3, _pixels3_mirrored = _block(3, planar=False, mirrored=False), _block(3, planar=False, mirrored=True)
_grey, _grey_mirrored = _block(1, planar=True, mirrored=False), _block(1, planar=True, mirrored=True)


@njit
def emit_blocks(line: int, step: int, factors: Any, out: Any, start: int, plane: int, pixel: int, count: int) -> None:
    """``count >= 16`` pixels of 1 or 3 bytes as ``emit_run`` does, by the arithmetic that fits ``out``'s dtype.

    uint8: the identity; uint32: the bits of float32 normalisation by ``factors``.
    """
    item = out.itemsize
    factors_at, target = factors.ctypes.data, out.ctypes.data + start * item
    for x in range(0, count, LANES):
        at = min(x, count - LANES)  # the last block overlaps the one before
        first = line + at * step if step > 0 else line + (at + LANES - 1) * step
        place, planes, pixels = target + at * pixel * item, plane * item, LANES * item
        if step == 3 and pixel == 1:
            _planar3(first, factors_at, place, planes, out)
        elif step == -3 and pixel == 1:
            _planar3_mirrored(first, factors_at, place, planes, out)
        elif step == 3:
            _pixels3(first, factors_at, place, pixels, out)
        elif step == -3:
            _pixels3_mirrored(first, factors_at, place, pixels, out)
        elif step == 1:
            _grey(first, factors_at, place, planes, out)
        else:
            _grey_mirrored(first, factors_at, place, planes, out)


@njit
def stands_in(table: Any, factors: Any, step: int, planar: bool, memory: int) -> Any:
    """Whether ``emit_blocks`` writes exactly what ``table`` [1 or 3, 256] says, for all its entries."""
    channels = table.shape[0]
    if table.itemsize == 4 and factors.shape[0] == 0:
        return False
    ramp = carray(pointer(memory), (256, channels), np.uint8)
    for value in range(256):
        ramp[value] = value
    out = carray(pointer(memory + PROOF_SIZE // 2), (channels * 256,), table.dtype)
    plane, pixel = (256, 1) if planar else (1, channels)
    first = memory if step > 0 else memory + 255 * channels
    emit_blocks(first, step, factors, out, 0, plane, pixel, 256)
    for c in range(channels):
        for x in range(256):
            if out[c * plane + x * pixel] != table[c, x if step > 0 else 255 - x]:
                return False
    return True
