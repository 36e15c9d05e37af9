"""Sixteen pixels at a time to the output, where arithmetic can stand in for the value table.

A table look-up takes one byte at a time.  Two kinds of table need none: the identity, and ToTensor with Normalize,
``(v / 255 - mean) / std`` in float32, by the numbers that ``normalization`` finds.  None of this is taken on trust:
``stands_in`` compares all 256 values of every channel with the table, on every call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from accel.backends.cpu.simd import LANES, lanes_of, load, store
from accel.backends.shared.numba_memory import pointer

PROOF_SIZE = 2 * 256 * 4 * 4
"""The bytes of memory that ``stands_in`` needs."""

_FLOAT = ir.FloatType()
_FLOATS = ir.VectorType(_FLOAT, LANES)


def _normalised(builder: Any, values: Any, factors: list[Any]) -> Any:
    """``(v / 255 - mean) / std`` of 16 bytes."""
    name = f"llvm.fmuladd.v{LANES}f32"
    fmuladd = builder.module.declare_intrinsic(name, (), ir.FunctionType(_FLOATS, [_FLOATS] * 3))
    scale, scale_rest, mean, inverse, inverse_rest = factors
    wide = builder.sitofp(builder.zext(values, ir.VectorType(ir.IntType(32), LANES)), _FLOATS)
    wide = builder.call(fmuladd, [wide, scale, builder.fmul(wide, scale_rest)])
    wide = builder.fsub(wide, mean)
    return builder.call(fmuladd, [wide, inverse, builder.fmul(wide, inverse_rest)])


def _row(channels: int, *, planar: bool, mirrored: bool, scaled: bool) -> Any:
    """The code for a row of ``count >= 16`` pixels of ``channels`` bytes, 16 pixels at a time.

    ``source`` is the address of the row's first pixel, ``target`` that of its place in the output, whose planes lie
    ``plane`` bytes apart; ``factors`` is the address of ``factors``' result. ``scaled``: to float32, else to bytes.
    """
    item = 4 if scaled else 1
    pixels = [(x, c) for x in range(LANES) for c in range(channels)]
    if planar:
        pixels.sort(key=lambda pixel: pixel[1])
    places = [(LANES - 1 - x if mirrored else x) * channels + c for x, c in pixels]
    parts = [slice(LANES * i, LANES * (i + 1)) for i in range(channels)]

    @intrinsic
    def row(typing: Any, source: Any, factors: Any, target: Any, plane: Any, count: Any) -> Any:
        def constant(value: int) -> ir.Constant:
            return ir.Constant(ir.IntType(64), value)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            source, factors, target, plane, count = args
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

        return types.void(*[types.int64] * 5), generate

    return row


_planar3, _planar3_mirrored, _scaled_planar3, _scaled_planar3_mirrored = (
    _row(3, planar=True, mirrored=mirrored, scaled=scaled) for scaled in (False, True) for mirrored in (False, True)
)
_pixels3, _pixels3_mirrored, _scaled_pixels3, _scaled_pixels3_mirrored = (
    _row(3, planar=False, mirrored=mirrored, scaled=scaled) for scaled in (False, True) for mirrored in (False, True)
)
_grey, _grey_mirrored, _scaled_grey, _scaled_grey_mirrored = (
    _row(1, planar=True, mirrored=mirrored, scaled=scaled) for scaled in (False, True) for mirrored in (False, True)
)


@njit
def write_blocks(
    line: int, step: int, factors: Any, item: int, out: int, start: int, plane: int, pixel: int, count: int
) -> None:
    """``count >= 16`` pixels of 1 or 3 bytes as ``write_run`` does, by the arithmetic that fits the size of an item.

    1: the identity; 4: float32 normalisation by ``factors``.
    """
    at, place, planes = np.int64(factors.ctypes.data), out + start * item, plane * item
    if item == 4:
        if step == 3 and pixel == 1:
            _scaled_planar3(line, at, place, planes, count)
        elif step == -3 and pixel == 1:
            _scaled_planar3_mirrored(line, at, place, planes, count)
        elif step == 3:
            _scaled_pixels3(line, at, place, planes, count)
        elif step == -3:
            _scaled_pixels3_mirrored(line, at, place, planes, count)
        elif step == 1:
            _scaled_grey(line, at, place, planes, count)
        else:
            _scaled_grey_mirrored(line, at, place, planes, count)
    elif step == 3 and pixel == 1:
        _planar3(line, at, place, planes, count)
    elif step == -3 and pixel == 1:
        _planar3_mirrored(line, at, place, planes, count)
    elif step == 3:
        _pixels3(line, at, place, planes, count)
    elif step == -3:
        _pixels3_mirrored(line, at, place, planes, count)
    elif step == 1:
        _grey(line, at, place, planes, count)
    else:
        _grey_mirrored(line, at, place, planes, count)


@njit
def stands_in(table: Any, item: int, factors: Any, step: int, planar: bool, memory: int) -> Any:
    """Whether ``write_blocks`` writes exactly what ``table`` [1 or 3, 256] says, whose items have so many bytes."""
    channels = table.shape[0]
    if channels == 4 or item not in (1, 4) or (item == 4 and factors.shape[0] == 0):
        return False
    ramp = carray(pointer(memory), (256 * channels,), np.uint8)
    for value in range(256):
        for c in range(channels):
            ramp[np.uint64(value * channels + c)] = value
    out = memory + PROOF_SIZE // 2
    plane, pixel = (256, 1) if planar else (1, channels)
    first = memory if step > 0 else memory + 255 * channels
    write_blocks(first, step, factors, item, out, 0, plane, pixel, 256)
    if item == 4:
        equal = _equal(out, table.ctypes.data, np.uint32, channels, step, plane, pixel)
    else:
        equal = _equal(out, table.ctypes.data, np.uint8, channels, step, plane, pixel)
    return equal


@njit
def _equal(out: int, table: int, dtype: Any, channels: int, step: int, plane: int, pixel: int) -> Any:
    found, wanted = carray(pointer(out), (256 * channels,), dtype), carray(pointer(table), (256 * channels,), dtype)
    for c in range(channels):
        for x in range(256):
            value = x if step > 0 else 255 - x
            if found[np.uint64(c * plane + x * pixel)] != wanted[np.uint64(c * 256 + value)]:
                return False
    return True
