"""Packing a block of 8 x 8 samples to rows of a few bits each, and back, in the form of planes_fields.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as ll
from llvmlite import ir
from numba import types
from numba.core import cgutils, config

from accel.system.native.intrinsics import FEATURES, emitted, splat
from accel.system.native.memory import step
from accel.system.native.simd import BYTE, WORD, Lanes, load

from .planes_fields import BIAS, FIRST_MASK, FIRST_WIDTH, KEEP, OTHER_MASK, OTHER_WIDTH, SIZE

_ROW = ir.VectorType(BYTE, 8)
_WORDS = ir.VectorType(WORD, 8)
_LANES = ir.Constant(_WORDS, list(range(8)))
# AMD's processors before Zen 3 have these instructions, but take about a hundred cycles for one.
_SLOW = ("bdver4", "znver1", "znver2")
_HAS_PDEP = "+bmi2" in FEATURES and (config.CPU_NAME or ll.get_host_cpu_name()) not in _SLOW


def _bmi2(builder: ir.IRBuilder, name: str, word: Any, mask: Any) -> Any:
    signature = ir.FunctionType(WORD, [WORD, WORD])
    function = cgutils.get_or_insert_function(builder.module, signature, f"llvm.x86.bmi.{name}.64")
    return builder.call(function, [word, mask])


def _spread(builder: ir.IRBuilder, word: Any, width: Any, mask: Any) -> Any:
    """The word's lowest 8 numbers of `width` bits each, one per 8-bit lane."""
    if _HAS_PDEP:
        return builder.bitcast(_bmi2(builder, "pdep", word, mask), _ROW)
    shifts = builder.mul(splat(builder, width, 8), _LANES)
    numbers = builder.trunc(builder.lshr(splat(builder, word, 8), shifts), _ROW)
    return builder.and_(numbers, builder.bitcast(mask, _ROW))


def _gather(builder: ir.IRBuilder, lanes: Any, width: Any, mask: Any) -> Any:
    """The inverse of `_spread`, for numbers of at most `width` bits."""
    if _HAS_PDEP:
        return _bmi2(builder, "pext", builder.bitcast(lanes, WORD), mask)
    numbers = builder.shl(builder.zext(lanes, _WORDS), builder.mul(splat(builder, width, 8), _LANES))
    return _joined(Lanes(builder, numbers), builder.or_)


def _joined(lanes: Lanes, join: Callable[[Any, Any], Any]) -> Any:
    """All lanes joined to one value."""
    builder, width = lanes.builder, lanes.value.type.count
    while width > 1:
        width //= 2
        low, high = (lanes.shuffle(range(start, start + width)).value for start in (0, width))
        lanes = Lanes(builder, join(low, high))
    return builder.extract_element(lanes.value, ir.Constant(ir.IntType(32), 0))


def _word(builder: ir.IRBuilder, address: Any) -> Any:
    return builder.load(step(builder, address, 0, WORD), align=1)


def _keep(builder: ir.IRBuilder, word: Any, address: Any) -> None:
    builder.store(builder.bitcast(word, WORD), step(builder, address, 0, WORD), align=1)


class _Code:
    """The fields of a code's row of the table, loaded before anything is stored."""

    def __init__(self, builder: ir.IRBuilder, code: Any, least: Any) -> None:
        fields = [builder.load(step(builder, code, 8 * place, WORD)) for place in range(SIZE)]
        self.widths_and_masks = fields[FIRST_WIDTH], fields[FIRST_MASK], fields[OTHER_WIDTH], fields[OTHER_MASK]
        first = builder.mul(least, ir.Constant(WORD, 0x0101010101010101))
        other = builder.or_(fields[BIAS], builder.and_(first, builder.not_(fields[KEEP])))
        self.first, self.other, self.keep = (builder.bitcast(word, _ROW) for word in (first, other, fields[KEEP]))
        self.builder = builder

    def row(self, row: int, above: Any) -> tuple[Any, Any, Any]:
        """The width of a row's numbers, their mask, and what is added to them, given the samples above."""
        if row == 0:
            return *self.widths_and_masks[:2], self.first
        kept = self.builder.and_(above, self.keep)
        return *self.widths_and_masks[2:], self.builder.add(kept, self.other)


@emitted(types.void, None, None, types.uint64, None, types.uint64)
def unpack_block(builder: ir.IRBuilder, source: Any, code: Any, least: Any, target: Any, stride: Any) -> None:
    """Unpack the block at `source`, packed by the code with this row of the table, to 8 rows of samples at target.

    Loads may reach SLACK bytes beyond the block.
    """
    said, samples = _Code(builder, code, least), None
    for row in range(8):
        width, mask, base = said.row(row, samples)
        samples = builder.add(_spread(builder, _word(builder, source), width, mask), base)
        _keep(builder, samples, target)
        source, target = step(builder, source, width), step(builder, target, stride)


@emitted(types.void, None, types.uint64, None, types.uint64, None)
def pack_block(builder: ir.IRBuilder, source: Any, stride: Any, code: Any, least: Any, target: Any) -> None:
    """Pack 8 rows of samples, by a code that can hold them, to `target`; up to 8 bytes beyond are overwritten."""
    said, samples = _Code(builder, code, least), None
    for row in range(8):
        width, mask, base = said.row(row, samples)
        samples = builder.bitcast(_word(builder, source), _ROW)
        _keep(builder, _gather(builder, builder.sub(samples, base), width, mask), target)
        source, target = step(builder, source, stride), step(builder, target, width)


@emitted(types.void, None, types.uint64, None)
def survey_blocks(builder: ir.IRBuilder, source: Any, stride: Any, found: Any) -> None:
    """Survey 8 blocks side by side, each of 8 rows of samples; writes a word for each to found (uint64[8]).

    Its bytes, from the lowest: the least and the largest sample; those of the first row; the bitwise or of `turns`. A
    row's difference d to the row above needs as many bits in two's complement as d ^ 2 d as an unsigned number.
    """

    def least(a: Any, b: Any) -> Any:
        return builder.select(builder.icmp_unsigned("<", a, b), a, b)

    def largest(a: Any, b: Any) -> Any:
        return builder.select(builder.icmp_unsigned(">", a, b), a, b)

    def joined(value: Any, join: Callable[[Any, Any], Any]) -> Any:
        """Join the eight bytes of each word in its lowest byte; the others are undefined."""
        for bits in (32, 16, 8):
            words = builder.bitcast(value, _WORDS)
            shifted = builder.lshr(words, ir.Constant(_WORDS, [bits] * 8))
            value = join(value, builder.bitcast(shifted, value.type))
        return builder.bitcast(value, _WORDS)

    first = above = low = high = load(builder, source, 64, 8).value
    turns = None
    for _ in range(7):
        source = step(builder, source, stride)
        row = load(builder, source, 64, 8).value
        difference = builder.sub(row, above)
        turn = builder.xor(difference, builder.add(difference, difference))
        turns = turn if turns is None else builder.or_(turns, turn)
        low, high, above = least(low, row), largest(high, row), row
    result = ir.Constant(_WORDS, [0] * 8)
    noted = ((low, least), (high, largest), (first, least), (first, largest), (turns, builder.or_))
    for i, (value, join) in enumerate(noted):
        byte = builder.and_(joined(value, join), ir.Constant(_WORDS, [255] * 8))
        result = builder.or_(result, builder.shl(byte, ir.Constant(_WORDS, [8 * i] * 8)))
    builder.store(result, builder.bitcast(found, _WORDS.as_pointer()), align=1)


@emitted(types.uint64, types.uint64)
def bit_length(builder: ir.IRBuilder, number: Any) -> Any:
    return builder.sub(ir.Constant(WORD, 64), builder.ctlz(number, ir.Constant(ir.IntType(1), 0)))
