"""Writing sixteen pixels at a time to the output, where arithmetic can replace the value table.

A table look-up takes one byte at a time.  Two kinds of table need none: the identity, and ToTensor with Normalize,
``(v / 255 - mean) / std`` in float32, by the numbers that ``normalization`` finds.  None of this is taken on trust:
``stands_in`` compares all 256 values of every channel with the table, on every call.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils

from accel.backends.cpu.simd import LANES
from accel.backends.shared.numba_memory import pointer
from accel.system.native.intrinsics import emitted, lanes_of, load, store

PROOF_SIZE = 2 * 256 * 4 * 4
"""The bytes of memory that ``stands_in`` needs."""

_AHEAD = 4096
"""Bytes, some rows of an image, to prefetch ahead: most pictures of a batch are in no cache, and the processor's own
prefetching does not go beyond a row."""

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


def _emit_row(
    builder: Any, values: Sequence[Any], channels: int, *, planar: bool, mirrored: bool, scaled: bool
) -> None:
    """Emit the code for a row of ``count >= 16`` pixels of ``channels`` bytes, 16 pixels at a time.

    ``values``: ``source`` is the address of the row's first pixel, ``factors`` that of ``find_factors``' result,
    ``target`` that of its place in the output, whose planes lie ``plane`` bytes apart. ``scaled``: to float32, else to
    bytes.
    """
    source, factors, target, plane, count = values
    item = 4 if scaled else 1
    pixels = [(x, c) for x in range(LANES) for c in range(channels)]
    if planar:
        pixels.sort(key=lambda pixel: pixel[1])
    places = [(LANES - 1 - x if mirrored else x) * channels + c for x, c in pixels]
    parts = [slice(LANES * i, LANES * (i + 1)) for i in range(channels)]
    rows = [builder.add(factors, _constant(16 * i)) for i in range(5 if scaled else 0)]
    columns = [load(builder, row, ir.VectorType(_FLOAT, 4)) for row in rows]
    of_part = [lanes_of([c for _, c in pixels[part]]) for part in parts]
    spread = [[builder.shuffle_vector(f, f, lanes) for f in columns] for lanes in of_part]
    last = builder.sub(count, _constant(LANES))
    with cgutils.for_range_slice(builder, _constant(0), count, _constant(LANES), inc=True) as (x, _):
        at = builder.select(builder.icmp_signed("<", x, last), x, last)  # the last block may overlap
        offset = builder.mul(at, _constant(channels))
        if mirrored:
            offset = builder.sub(_constant((1 - LANES) * channels), offset)
        if scaled:
            _fetch(builder, builder.add(source, builder.add(offset, _constant(_AHEAD))))
        data = load(builder, builder.add(source, offset), ir.VectorType(ir.IntType(8), LANES * channels))
        place = builder.add(target, builder.mul(at, _constant(item if planar else item * channels)))
        for part, spread_factors in zip(parts, spread, strict=True):
            block = builder.shuffle_vector(data, data, lanes_of(places[part]))
            store(builder, _normalised(builder, block, spread_factors) if scaled else block, place)
            place = builder.add(place, plane if planar else _constant(LANES * item))


def _fetch(builder: Any, address: Any) -> None:
    """Emit a prefetch of an address, which need not be valid."""
    byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
    fetch = builder.module.declare_intrinsic("llvm.prefetch", (byte,), kind)
    to_read, keep, data = (ir.Constant(number, value) for value in (0, 3, 1))
    builder.call(fetch, [builder.inttoptr(address, byte), to_read, keep, data])


def _constant(value: int) -> ir.Constant:
    return ir.Constant(ir.IntType(64), value)


_LAYOUTS = tuple(product(((1, True), (3, True), (3, False)), (False, True)))
"""Channels, whether the output is planar, and whether the row is mirrored."""


@emitted(types.void, *[types.int64] * 8)
def _write_row(
    builder: Any, item: Any, step: Any, pixel: Any, source: Any, factors: Any, target: Any, plane: Any, count: Any
) -> None:
    """Write a row whose pixels lie ``step`` bytes apart, to ``pixel`` items of ``item`` bytes each."""
    values = source, factors, target, plane, count
    for scaled in (False, True):
        with builder.if_then(builder.icmp_signed("==", item, _constant(4 if scaled else 1))):
            for (channels, planar), mirrored in _LAYOUTS:
                steps = builder.icmp_signed("==", step, _constant(-channels if mirrored else channels))
                pixels = builder.icmp_signed("==", pixel, _constant(1 if planar else channels))
                with builder.if_then(builder.and_(steps, pixels)):
                    _emit_row(builder, values, channels, planar=planar, mirrored=mirrored, scaled=scaled)


@njit
def write_blocks(
    line: int, step: int, factors: Any, item: int, out: int, start: int, plane: int, pixel: int, count: int
) -> None:
    """Write ``count >= 16`` pixels of 1 or 3 bytes as ``write_run`` does, by the arithmetic for the item's size.

    1: the identity; 4: float32 normalisation by ``factors``.
    """
    at = np.int64(factors.ctypes.data)
    _write_row(item, step, pixel, line, at, out + start * item, plane * item, count)


@njit
def stands_in(table: Any, item: int, factors: Any, step: int, planar: bool, memory: int) -> Any:
    """Whether ``write_blocks`` equals a look-up in ``table`` [channels, 256], whose items have ``item`` bytes."""
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
