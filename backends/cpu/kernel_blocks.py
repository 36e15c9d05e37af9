"""Sixteen pixels at a time to the output, where arithmetic can stand in for the value table.

A table look-up takes one byte at a time.  Two kinds of table need none: the identity, and ToTensor with Normalize,
``(v / 255 - mean) / std`` in float32.  The second is computed with each division as a multiplication by a
reciprocal of twice the precision, or of single precision where torchvision multiplies itself (v2's ToDtype).  None
of this is taken on trust: ``stands_in`` compares all 256 values of every channel with the table, on every call.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
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


_LEVELS = np.arange(256, dtype=np.float32)
_SCALINGS = (
    (_LEVELS / np.float32(255), *_reciprocal(np.float32(255))),
    (_LEVELS * np.float32(1 / 255), np.float32(1 / 255), np.float32(0)),
)


def _near(value: float) -> npt.NDArray[np.float32]:
    """Zero, and the five float32 around ``value``."""
    bits = np.float32(value).view(np.int32) + np.arange(-2, 3, dtype=np.int32)
    return np.append(bits.view(np.float32), np.float32(0))


@functools.lru_cache(maxsize=64)
def factors(table: bytes, channels: int) -> npt.NDArray[np.float32]:
    """Factors float32 [5, 4] that may reproduce a float32 table, [0, 4] where none are found.

    Rows: the two parts of 1 / 255, the mean, the two parts of 1 / std; one column per channel.
    """
    result = np.zeros((5, 4), np.float32)
    for c, values in enumerate(np.frombuffer(table, np.float32).reshape(channels, 256)):
        found = _fit(values)
        if found is None:
            return NO_FACTORS
        result[:, c] = found
    return result


def _fit(values: npt.NDArray[np.float32]) -> tuple[np.float32, ...] | None:
    """One channel's factors.

    A straight line through the table gives mean and std to within a few units in the last place.
    """
    if not np.isfinite(values).all() or values[0] == values[255] or not _is_straight(values):
        return None
    for scaled, scale, scale_rest in _SCALINGS:
        slope, intercept = np.polyfit(scaled.astype(np.float64), values.astype(np.float64), 1)
        with np.errstate(all="ignore"):
            means, stds = _near(-intercept / slope)[:, None, None], _near(1 / slope)[:, None]
            fits = np.argwhere((((scaled - means) / stds) == values).all(axis=-1))
        if len(fits):
            mean, std = means[fits[0, 0], 0, 0], stds[fits[0, 1], 0]
            return scale, scale_rest, mean, *_reciprocal(std)
    return None


def _is_straight(values: npt.NDArray[np.float32]) -> bool:
    """Whether a line is worth trying, by three places: a colour op's table, another for every image, is none."""
    first, span = float(values[0]), float(values[255]) - float(values[0])
    return all(abs(first + span * n / 255 - float(values[n])) < 1e-5 * abs(span) for n in (67, 131, 202))


def _normalised(builder: Any, values: Any, factors: list[Any]) -> Any:
    """``(v / 255 - mean) / std`` of 16 bytes."""
    name = f"llvm.fmuladd.v{LANES}f32"
    fmuladd = builder.module.declare_intrinsic(name, (), ir.FunctionType(_FLOATS, [_FLOATS] * 3))
    scale, scale_rest, mean, inverse, inverse_rest = factors
    wide = builder.sitofp(builder.zext(values, ir.VectorType(ir.IntType(32), LANES)), _FLOATS)
    wide = builder.call(fmuladd, [wide, scale, builder.fmul(wide, scale_rest)])
    wide = builder.fsub(wide, mean)
    return builder.call(fmuladd, [wide, inverse, builder.fmul(wide, inverse_rest)])


def _row(channels: int, *, planar: bool, mirrored: bool) -> Any:
    """The code for a row of ``count >= 16`` pixels of ``channels`` bytes, 16 pixels at a time.

    ``source`` is the address of the row's first pixel, ``target`` that of its place in ``out``, whose planes lie
    ``plane`` bytes apart; ``factors`` is the address of ``factors``' result.
    """
    pixels = [(x, c) for x in range(LANES) for c in range(channels)]
    if planar:
        pixels.sort(key=lambda pixel: pixel[1])
    places = [(LANES - 1 - x if mirrored else x) * channels + c for x, c in pixels]
    parts = [slice(LANES * i, LANES * (i + 1)) for i in range(channels)]

    @intrinsic
    def row(typing: Any, source: Any, factors: Any, target: Any, plane: Any, count: Any, out: Any) -> Any:
        scaled, item = out.dtype == types.uint32, out.dtype.bitwidth // 8

        def constant(value: int) -> ir.Constant:
            return ir.Constant(ir.IntType(64), value)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            source, factors, target, plane, count, _ = args
            rows = [builder.add(factors, constant(16 * i)) for i in range(5 if scaled else 0)]
            columns = [load(builder, row, ir.VectorType(_FLOAT, 4)) for row in rows]
            of_part = [lanes_of([c for _, c in pixels[part]]) for part in parts]
            spread = [[builder.shuffle_vector(f, f, lanes) for f in columns] for lanes in of_part]
            last = builder.sub(count, constant(LANES))
            with cgutils.for_range_slice(builder, constant(0), count, constant(LANES), inc=True) as (x, _):
                at = builder.select(builder.icmp_signed("<", x, last), x, last)  # the last block may overlap
                offset = builder.mul(at, constant(channels))
                if mirrored:
                    offset = builder.sub(constant((1 - LANES) * channels), offset)
                data = load(builder, builder.add(source, offset), ir.VectorType(ir.IntType(8), LANES * channels))
                place = builder.add(target, builder.mul(at, constant(item if planar else item * channels)))
                for part, spread_factors in zip(parts, spread, strict=True):
                    values = builder.shuffle_vector(data, data, lanes_of(places[part]))
                    store(builder, _normalised(builder, values, spread_factors) if scaled else values, place)
                    place = builder.add(place, plane if planar else constant(LANES * item))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64, types.int64, types.int64, out), generate

    return row


_planar3, _planar3_mirrored = _row(3, planar=True, mirrored=False), _row(3, planar=True, mirrored=True)
_pixels3, _pixels3_mirrored = _row(3, planar=False, mirrored=False), _row(3, planar=False, mirrored=True)
_grey, _grey_mirrored = _row(1, planar=True, mirrored=False), _row(1, planar=True, mirrored=True)


@njit
def emit_blocks(line: int, step: int, factors: Any, out: Any, start: int, plane: int, pixel: int, count: int) -> None:
    """``count >= 16`` pixels of 1 or 3 bytes as ``emit_run`` does, by the arithmetic that fits ``out``'s dtype.

    uint8: the identity; uint32: the bits of float32 normalisation by ``factors``.
    """
    at, place, planes = factors.ctypes.data, out.ctypes.data + start * out.itemsize, plane * out.itemsize
    if step == 3 and pixel == 1:
        _planar3(line, at, place, planes, count, out)
    elif step == -3 and pixel == 1:
        _planar3_mirrored(line, at, place, planes, count, out)
    elif step == 3:
        _pixels3(line, at, place, planes, count, out)
    elif step == -3:
        _pixels3_mirrored(line, at, place, planes, count, out)
    elif step == 1:
        _grey(line, at, place, planes, count, out)
    else:
        _grey_mirrored(line, at, place, planes, count, out)


@njit
def stands_in(table: Any, factors: Any, step: int, planar: bool, memory: int) -> Any:
    """Whether ``emit_blocks`` writes exactly what ``table`` [1 or 3, 256] says, for all its entries."""
    channels = table.shape[0]
    if channels == 4 or table.itemsize not in (1, 4) or (table.itemsize == 4 and factors.shape[0] == 0):
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
