"""Writing finished pixels to the output: window, fills, value table, layout and dtype.

Where arithmetic can replace the value table, sixteen pixels are written at a time: a look-up takes one byte at a time.
Two kinds of table need none: the identity, and ToTensor with Normalize, ``(v / 255 - mean) / std`` in float32, by the
numbers that ``passes.find_factors`` finds.  None of this is taken on trust: ``stands_in`` compares all 256 values of
every channel with the table, on every call.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils

from accel.backends.cpu.simd import LANES, copy_bytes
from accel.backends.shared.numba_memory import pointer
from accel.system.native.intrinsics import emitted, lanes_of, load, store


@njit
def shown(window: Any) -> Any:
    """The lowest code, and the half-open range of shown positions, which is empty if all is fill."""
    lowest, first, stop = np.int64(0), np.int64(1 << 31), np.int64(0)
    for code in window:
        lowest, stop = min(lowest, code), max(stop, code + 1)
        if code >= 0:
            first = min(first, code)
    return lowest, min(first, stop), stop


@njit
def longest_run(window: Any) -> Any:
    """The longest stretch of output positions that show neighbours in order or mirrored: begin, stop and step.

    The step is 1 or -1.  Plain and mirrored windows are one such run, padded and reflected ones mostly.
    """
    best, best_stop, best_step = 0, 0, 1
    begin, step = 0, 1
    for x in range(window.shape[0]):
        joined = x > begin and window[x] >= 0 and window[x - 1] >= 0 and abs(window[x] - window[x - 1]) == 1
        if joined and x == begin + 1:
            step = window[x] - window[x - 1]
        elif not joined or window[x] - window[x - 1] != step:
            begin, step = x, 1
        if window[x] >= 0 and x + 1 - begin > best_stop - best:
            best, best_stop, best_step = begin, x + 1, step
    return best, best_stop, best_step


@njit
def write_run(
    line: int, step: int, table: Any, item: int, out: int, start: int, plane: int, pixel: int, count: int
) -> None:
    """Look up ``count`` pixels, ``step`` bytes apart from address ``line`` on, and write them to address ``out``.

    Channel c of pixel x goes to item ``start + c * plane + x * pixel``; ``item``: the bytes of an item.
    """
    channels, values = table.shape[0], table.ctypes.data
    if item == 1:
        _write_run(line, step, values, channels, np.uint8, out, start, plane, pixel, count)
    elif item == 2:
        _write_run(line, step, values, channels, np.uint16, out, start, plane, pixel, count)
    elif item == 4:
        _write_run(line, step, values, channels, np.uint32, out, start, plane, pixel, count)
    else:
        _write_run(line, step, values, channels, np.uint64, out, start, plane, pixel, count)


@njit
def _write_run(
    line: int,
    step: int,
    table: int,
    channels: int,
    dtype: Any,
    out: int,
    start: int,
    plane: int,
    pixel: int,
    count: int,
) -> None:
    values, items = carray(pointer(table), (1,), dtype), carray(pointer(out), (1,), dtype)
    for c in range(channels):
        source, at = line + c, start + c * plane
        for x in range(count):
            byte = carray(pointer(source + x * step), (1,), np.uint8)[0]
            items[np.uint64(at + x * pixel)] = values[np.uint64(c * 256 + byte)]  # unsigned: nothing wraps around


@njit
def gather_line(
    line: int, first: int, step: int, window: Any, row_code: int, fills: Any, begin: int, end: int, target: int
) -> None:
    """Gather any window into a row of pixels at ``target``: position p is pixel ``first + step * p`` of the line.

    The lower of a row's and a column's code wins.  Positions ``begin`` to ``end`` show pixels in order.
    """
    channels = fills.shape[1]
    if row_code < 0 or begin >= end:
        _gather_codes(line, first, step, window, row_code, fills, 0, window.shape[0], target)
        return
    count = (end - begin) * channels
    copy_bytes(line + (first + step * window[begin]) * channels, target + begin * channels, count)
    _gather_codes(line, first, step, window, row_code, fills, 0, begin, target)
    _gather_codes(line, first, step, window, row_code, fills, end, window.shape[0], target)


@njit
def _gather_codes(
    line: int, first: int, step: int, window: Any, row_code: int, fills: Any, begin: int, end: int, target: int
) -> None:
    """``gather_line`` for positions ``begin`` to ``end``, one by one."""
    channels = np.int64(fills.shape[1])
    colours, origin, pitch = fills.ctypes.data, line + first * channels, step * channels
    for x in range(begin, end):
        position = np.int64(window[x])
        code = position if position < row_code else row_code
        source = colours - (1 + code) * channels if code < 0 else origin + pitch * position
        if channels == 3:
            copy_bytes(source, target + x * 3, 3)
        else:
            copy_bytes(source, target + x * channels, channels)


# -- sixteen pixels at a time --------------------------------------------------------------------------------

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
