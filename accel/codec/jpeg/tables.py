"""Quantisers, and Huffman look-up tables (ITU T.81 annex C), made anew unless the last picture had the same ones.

The next LOOK bits of the stream index a table whose uint64 entries resolve up to two AC symbols at once, magnitude
bits included (after stb_image's "fast AC"):

    bits  0-7    the number of bits that the symbols take
    bits  8-15   the first coefficient's distance from k, the index of the next coefficient
    bits 16-23   the second one's
    bits 24-31   the advance of k; END more after an end of block
    bits 32-47   the first coefficient
    bits 48-63   the second one; 0, for a place behind the first, if there is none

If LOOK bits hold a code but not all of its magnitude, the advance is UNRESOLVED, and the two distances are the code's
run and size; if they do not even hold the code, the length is 0, too.  Behind the entries their lengths are repeated, a
byte each: only these are needed between one look-up and the next, and they fit the nearest cache.

A DC table is indexed by DC_LOOK bits, and its entries have only the length and, in place of the second distance, the
size: differences vary too much to be worth resolving.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from accel.system.native.intrinsics import called, emitted, splat
from accel.system.native.memory import i64, pointer_to, step, u64
from accel.system.native.simd import BYTE, WORD

from . import header_fields as hd
from .idct import MAX_QUANT
from .scratch import LOOK, LOOK_SIZE

DC_LOOK = 8
END = 128
UNRESOLVED = 255
UNKNOWN_ENTRY = u64(UNRESOLVED << 24)

# A table's row of `codes`, for codes that LOOK bits do not hold (T.81 F.2.2.3): a 16-bit window below row[n] starts
# with a code of at most n bits; row[CODE_PLACE + n], added modulo 2**32 to an n-bit code, is its symbol's place.
# From row[COUNTS] on: how many codes of each length the table was made of, and 1, or 0 if it was not made.
CODE_PLACE = 17
SYMBOLS = 34
COUNTS = SYMBOLS + 256
_MADE = COUNTS + 16

_LANES = ir.VectorType(WORD, 8)


@njit
def _canonical(data: Any, at: int, codes: Any) -> bool:
    """Make a table's row of `codes` (annex C); False if a code is all ones, which libjpeg refuses (jdhuff.c)."""
    code, count = 0, 0
    codes[0] = 0
    for length in range(1, 17):
        codes[COUNTS + length - 1] = data[at + length - 1]
        codes[CODE_PLACE + length] = np.uint32(SYMBOLS + count - code)
        for _ in range(i64(data[at + length - 1])):
            codes[SYMBOLS + count] = data[at + 16 + count]
            count += 1
            code += 1
        if data[at + length - 1] > 0 and code >= 1 << length:
            return False
        codes[length] = code << (16 - length)
        code <<= 1
    return True


@njit
def _fill_dc(data: Any, at: int, look: Any) -> bool:
    """Fill a DC table, from start to end, as codes ascend; False if a size is above 15."""
    place, count = 0, 0
    for length in range(1, 17):
        for _ in range(i64(data[at + length - 1])):
            size = i64(data[at + 16 + count])
            count += 1
            if size > 15:
                return False
            if length <= DC_LOOK:
                filled = place + (1 << (DC_LOOK - length))
                look[place:filled] = u64(size << 16 | (length + size))
                place = filled
    look[place : 1 << DC_LOOK] = 0
    return True


@njit
def _fill_symbol(symbol: int, length: int, look: Any, place: int) -> Any:
    """Fill the entries of an AC symbol with a code of `length` bits from a place on; returns the place behind them."""
    run, size = symbol >> 4, symbol & 15
    spare = LOOK - length - size
    if spare < 0:
        entry, values, repeat = UNRESOLVED << 24 | size << 16 | run << 8, 1, 1 << (LOOK - length)
    elif symbol == 0:
        entry, values, repeat = END << 24, 1, 1 << spare
    else:
        entry, values, repeat = (run + 1) << 24 | (run + 1) << 16 | run << 8, 1 << size, 1 << spare
    entry |= length + size
    for magnitude in range(values):
        value = magnitude if 2 * magnitude >= values else magnitude + 1 - values
        filled = u64(entry) | u64(value & 0xFFFF) << u64(32)
        for i in range(place, place + repeat):
            look[i] = filled
        place += repeat
    return place


@njit
def _fill_ac(data: Any, at: int, look: Any) -> bool:
    """Fill an AC table with entries of one symbol each; False if a symbol is not valid."""
    place, count = 0, 0
    for length in range(1, 17):
        for _ in range(i64(data[at + length - 1])):
            symbol = i64(data[at + 16 + count])
            count += 1
            if symbol & 15 == 0 and 0 < symbol >> 4 < 15:
                return False
            if length <= LOOK:
                place = _fill_symbol(symbol, length, look, place)
    look[place:LOOK_SIZE] = UNKNOWN_ENTRY
    return True


def _all(number: int) -> ir.Constant:
    return ir.Constant(_LANES, [number] * _LANES.count)


@emitted(types.void, None, None, types.int64)
def _pair_eight(builder: ir.IRBuilder, single: Any, look: Any, at: Any) -> None:
    """Make the entries from `at` on, and their lengths; see ``_pair``."""
    places, offset = ir.VectorType(WORD.as_pointer(), _LANES.count), builder.mul(at, ir.Constant(WORD, 8))
    first = builder.load(step(builder, single, offset, _LANES), align=8)
    length = builder.and_(first, _all(255))
    index = builder.add(splat(builder, at, _LANES.count), ir.Constant(_LANES, list(range(_LANES.count))))
    rest = builder.shl(builder.and_(builder.shl(index, length), _all(LOOK_SIZE - 1)), _all(3))
    source = builder.add(splat(builder, builder.ptrtoint(single, WORD), _LANES.count), rest)
    every = ir.Constant(ir.VectorType(ir.IntType(1), _LANES.count), [1] * _LANES.count)
    kinds = places, ir.IntType(32), every.type, _LANES
    gather = called(builder, f"llvm.masked.gather.v{_LANES.count}i64.v{_LANES.count}p0", _LANES, *kinds)
    align = ir.Constant(ir.IntType(32), 8)
    second = builder.call(gather, [builder.inttoptr(source, places), align, every, _all(0)])
    # length 0 (no code) wraps around to a huge number
    short = builder.icmp_unsigned(
        "<", builder.sub(builder.and_(second, _all(255)), _all(1)), builder.sub(_all(LOOK), length)
    )
    open_ended = builder.icmp_unsigned("<", builder.and_(builder.lshr(first, _all(24)), _all(255)), _all(END))
    moved = builder.add(
        builder.shl(builder.and_(second, _all(255 << 8)), _all(8)),
        builder.shl(builder.lshr(second, _all(32)), _all(48)),
    )
    both = builder.add(builder.add(first, builder.and_(second, _all(255 << 24 | 255))), moved)
    made = builder.select(builder.and_(short, open_ended), both, first)
    builder.store(made, step(builder, look, offset, _LANES), align=8)
    lengths = builder.trunc(made, ir.VectorType(BYTE, _LANES.count))
    behind = builder.add(at, ir.Constant(WORD, 8 * LOOK_SIZE))
    builder.store(lengths, step(builder, look, behind, lengths.type), align=8)


@njit
def _pair(single: Any, look: Any) -> None:
    """Join each entry with the entry for its remaining bits, if these hold a whole symbol.

    An entry of one coefficient has its advance in place of the second distance, to which the second one's is added.
    """
    source, target = pointer_to(single), pointer_to(look)
    for at in range(0, LOOK_SIZE, 8):
        _pair_eight(source, target, at)


@njit
def _is_made(data: Any, at: int, codes: Any) -> bool:
    """Whether a table was made of the counts and the symbols at data[at:]."""
    if codes[_MADE] == 0:
        return False
    count = 0
    for i in range(16):
        if codes[COUNTS + i] != data[at + i]:
            return False
        count += i64(data[at + i])
    same = 0
    while same < count and codes[SYMBOLS + same] == data[at + 16 + same]:
        same += 1
    return same == count


@njit
def build(data: Any, at: int, table: int, look: Any, codes: Any) -> bool:
    """Make table 0..7 from the 16 counts and the symbols at data[at:]; False: not a valid table."""
    own = codes[table]
    if _is_made(data, at, own):
        return True
    own[_MADE] = 0
    if not _canonical(data, at, own):
        return False
    if table < 4:
        if not _fill_dc(data, at, look[table]):
            return False
    elif _fill_ac(data, at, look[8]):
        _pair(look[8], look[table])
    else:
        return False
    own[_MADE] = 1
    return True


@njit
def quantisers(data: Any, header: Any, order: Any, quant: Any) -> bool:
    """Fill quant (int16[3, 64]) in block order; False if a value is above MAX_QUANT."""
    for c in range(header[hd.COMPONENTS]):
        at = header[hd.QUANT_AT + header[hd.COMPONENT + hd.COMPONENT_FIELDS * c + hd.QUANT]]
        wide = data[at] >> 4
        for k in range(64):
            value = i64(data[at + 1 + k])
            if wide:
                value = i64(data[at + 1 + 2 * k]) << 8 | i64(data[at + 2 + 2 * k])
            if value > MAX_QUANT:
                return False
            quant[c, order[k]] = value
    return True


@njit
def huffman(data: Any, header: Any, look: Any, codes: Any) -> bool:
    """Make the Huffman tables that the scan uses; False if one is not valid."""
    made = 0
    for c in range(header[hd.COMPONENTS]):
        for field in (hd.DC_TABLE, hd.AC_TABLE):
            table = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c + field]
            if not made >> table & 1 and not build(data, header[hd.HUFFMAN_AT + table], table, look, codes):
                return False
            made |= 1 << table
    return True
