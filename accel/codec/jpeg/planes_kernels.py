"""Packing the planes of a whole picture to parts, and making a region's pixels of them (planes_fields.py: their form).

Parts and descriptions may hold any bytes when they are unpacked: everything in them is checked before it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as ll
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils, config

from accel.codec.header import LARGEST_SIDE
from accel.system.native.intrinsics import FEATURES, emitted, splat
from accel.system.native.memory import advanced, i64, pointer_to, step, u64
from accel.system.native.simd import BYTE, WORD, Lanes, load

from . import header_fields as hd
from . import layout_fields as lo
from . import planes_fields as pf
from .header import are_factors_whole
from .layout import needed_mcus
from .layout import region as lay_out
from .pixels import finish_rows
from .points import bit_length, mcus

# -- a block of 8 x 8 samples, as rows of a few bits each -----------------------------------------------------

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
        fields = [builder.load(step(builder, code, 8 * place, WORD)) for place in range(pf.SIZE)]
        self.first_width, self.first_mask = fields[pf.FIRST_WIDTH], fields[pf.FIRST_MASK]
        self.other_width, self.other_mask = fields[pf.OTHER_WIDTH], fields[pf.OTHER_MASK]
        first = builder.mul(least, ir.Constant(WORD, 0x0101010101010101))
        other = builder.or_(fields[pf.BIAS], builder.and_(first, builder.not_(fields[pf.KEEP])))
        self.first, self.other, self.keep = (builder.bitcast(word, _ROW) for word in (first, other, fields[pf.KEEP]))
        self.builder = builder

    def row(self, row: int, above: Any) -> tuple[Any, Any, Any]:
        """The width of a row's numbers, their mask, and what is added to them, given the samples above."""
        if row == 0:
            return self.first_width, self.first_mask, self.first
        kept = self.builder.and_(above, self.keep)
        return self.other_width, self.other_mask, self.builder.add(kept, self.other)


@emitted(types.void, None, None, types.uint64, None, types.uint64)
def unpack_block(builder: ir.IRBuilder, source: Any, code: Any, least: Any, target: Any, stride: Any) -> None:
    """Unpack the block at `source`, packed by the code with this row of the table, to 8 rows of samples at target.

    Loads may reach SLACK bytes beyond the block.
    """
    fields, samples = _Code(builder, code, least), None
    for row in range(8):
        width, mask, base = fields.row(row, samples)
        samples = builder.add(_spread(builder, _word(builder, source), width, mask), base)
        _keep(builder, samples, target)
        source, target = step(builder, source, width), step(builder, target, stride)


@emitted(types.void, None, types.uint64, None, types.uint64, None)
def pack_block(builder: ir.IRBuilder, source: Any, stride: Any, code: Any, least: Any, target: Any) -> None:
    """Pack 8 rows of samples, by a code that can hold them, to `target`; up to 8 bytes beyond are overwritten."""
    fields, samples = _Code(builder, code, least), None
    for row in range(8):
        width, mask, base = fields.row(row, samples)
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


# -- a picture ------------------------------------------------------------------------------------------------


@njit
def _code(found: Any) -> Any:
    """The shortest code for a block, by the result of survey_blocks: (code, least sample, size in bytes)."""
    byte = u64(255)
    least, largest = found & byte, found >> u64(8) & byte
    first_least, first_largest, turns = found >> u64(16) & byte, found >> u64(24) & byte, found >> u64(32)
    level = i64(bit_length(largest - least))
    first, other = i64(bit_length(first_largest - first_least)), i64(bit_length(turns))
    if first + 7 * other < 8 * level:
        return pf.STEEP + pf.WIDTHS * first + other, first_least, first + 7 * other
    return level, least, 8 * level


@njit
def _repeat_edges(row: Any, planes: Any, top: int, across: int) -> None:
    """Repeat the outermost samples beyond the component's true size in 8 rows of samples; they then take no bits."""
    for y in range(top, top + 8):
        place = row[lo.ORIGIN] + y * row[lo.STRIDE]
        if y < row[lo.ROWS]:
            for x in range(row[lo.COLUMNS], 8 * across):
                planes[place + x] = planes[place + row[lo.COLUMNS] - 1]
        else:
            for x in range(8 * across):
                planes[place + x] = planes[place - row[lo.STRIDE] + x]


@njit
def _put_word(parts: Any, at: Any, number: Any) -> None:
    for i in range(4):
        parts[at + i] = number >> (8 * i) & 255


@njit
def _first_row_at(header: Any, layout: Any, mcu_row: Any, band: Any, at: Any) -> Any:
    """Where the blocks of the part begin that is at a place: behind its size and the places of its rows of blocks."""
    at += 4
    for c in range(header[hd.COMPONENTS]):
        v = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c + hd.V_SAMP]
        at += 4 * max(min((mcu_row + band) * v, layout[c, lo.BLOCK_BOTTOM]) - mcu_row * v, 0)
    return at


@njit
def _pack_row(source: Any, stride: Any, across: int, table: Any, surveyed: Any, target: Any, at: Any) -> Any:
    """Pack a row of blocks, from its first sample on, to target[at:]; returns where it ends."""
    notes, at = at, at + 2 * across
    for x in range(across):
        if x & 7 == 0:
            survey_blocks(source, stride, surveyed)
        code, least, size = _code(surveyed[x & 7])
        target[notes + x], target[notes + across + x] = code, least
        pack_block(source, stride, advanced(table, pf.CODE_FIELDS * code), least, advanced(target, at))
        at += size
        source = advanced(source, 8)
    return at


@njit
def pack(header: Any, layout: Any, codes: Any, planes: Any, sums: Any, meta: Any, parts: Any, ends: Any) -> int:
    """Pack the planes that a decode of a whole picture has left; returns the number of parts.

    Args:
        header, layout, planes: those of that decode; samples beyond the picture's edges are changed.
        codes, sums: planes_fields.code_table(); uint64[8], working memory.
        meta, parts, ends: uint16[META_SIZE], uint8[n] (1/32 larger than the planes) and int64[PARTS], to be filled with
            the description, the parts, and the end of each.
    """
    _, rows = mcus(header)
    band = -(-rows // pf.PARTS)
    meta[pf.FORM], meta[pf.BAND] = pf.VERSION, band
    meta[pf.WIDTH], meta[pf.HEIGHT] = header[hd.WIDTH], header[hd.HEIGHT]
    meta[pf.COMPONENTS], meta[pf.COLOUR] = header[hd.COMPONENTS], header[hd.COLOUR]
    meta[pf.SAMPLING :] = 0
    table, source, target, surveyed = pointer_to(codes), pointer_to(planes), pointer_to(parts), pointer_to(sums)
    count, start, directory, at = 0, i64(0), i64(0), i64(0)
    for mcu_row in range(rows):
        if mcu_row % band == 0:
            start, directory = at, at + 4
            at = _first_row_at(header, layout, mcu_row, band, at)
        for c in range(header[hd.COMPONENTS]):
            fields, row = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c :], layout[c]
            v, across = fields[hd.V_SAMP], row[lo.BLOCK_RIGHT]
            meta[pf.SAMPLING + 2 * c], meta[pf.SAMPLING + 2 * c + 1] = fields[hd.H_SAMP], v
            for y in range(mcu_row * v, min((mcu_row + 1) * v, row[lo.BLOCK_BOTTOM])):
                _put_word(parts, directory, at - start)
                directory += 4
                _repeat_edges(row, planes, 8 * y, across)
                place = advanced(source, row[lo.ORIGIN] + 8 * y * row[lo.STRIDE])
                at = _pack_row(place, u64(row[lo.STRIDE]), across, table, surveyed, target, at)
        if (mcu_row + 1) % band == 0 or mcu_row + 1 == rows:
            parts[at : at + pf.SLACK] = 0
            at += pf.SLACK
            _put_word(parts, start, at - start)
            ends[count] = at
            count += 1
    return count


# -- a region -------------------------------------------------------------------------------------------------


@njit
def _describe(meta: Any, header: Any) -> Any:
    """Fill `header` from a description; False: the description is not valid."""
    header[:] = 0
    if len(meta) != pf.META_SIZE or meta[pf.FORM] != pf.VERSION or meta[pf.BAND] == 0:
        return False
    width, height, count = i64(meta[pf.WIDTH]), i64(meta[pf.HEIGHT]), i64(meta[pf.COMPONENTS])
    if width == 0 or height == 0 or max(width, height) > LARGEST_SIDE or width * height > hd.MAX_PIXELS:
        return False
    if meta[pf.COLOUR] > hd.RGB or (count != 3 if meta[pf.COLOUR] != hd.GREY else count != 1):
        return False
    header[hd.WIDTH], header[hd.HEIGHT] = width, height
    header[hd.COMPONENTS], header[hd.COLOUR] = count, meta[pf.COLOUR]
    for c in range(count):
        h, v = i64(meta[pf.SAMPLING + 2 * c]), i64(meta[pf.SAMPLING + 2 * c + 1])
        if h < 1 or h > 4 or v < 1 or v > 4:
            return False
        fields = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c :]
        fields[hd.H_SAMP], fields[hd.V_SAMP] = h, v
        header[hd.H_MAX], header[hd.V_MAX] = max(header[hd.H_MAX], h), max(header[hd.V_MAX], v)
    return are_factors_whole(header)


@njit
def needed(meta: Any, header: Any, layout: Any, top: int, left: int, height: int, width: int, span: Any) -> Any:
    """Read a description and lay out a region of its picture; the needed parts are span[0] to before span[1].

    Returns the size in bytes of the planes and lines; 0: the description is not valid, or there is no such region.
    """
    if not _describe(meta, header):
        return 0
    size = lay_out(header, layout, top, left, height, width, True)
    if size > 0:
        _, _, first, last, _ = needed_mcus(header, layout)
        span[0], span[1] = first // i64(meta[pf.BAND]), last // i64(meta[pf.BAND]) + 1
    return size


@njit
def _word_at(parts: Any, at: Any) -> Any:
    return i64(parts[at]) | i64(parts[at + 1]) << 8 | i64(parts[at + 2]) << 16 | i64(parts[at + 3]) << 24


@njit
def _unpack_row(parts: Any, at: Any, limit: Any, table: Any, row: Any, planes: Any, y: int, across: int) -> bool:
    """Unpack the needed blocks of a row of blocks, which begins at parts[at]; False if they do not end by `limit`."""
    notes, at = at, at + 2 * across
    if at > limit:
        return False
    for x in range(row[lo.BLOCK_LEFT]):
        at += table[pf.CODE_FIELDS * i64(parts[notes + x]) + pf.SIZE]
    target = advanced(planes, row[lo.ORIGIN] + 8 * y * row[lo.STRIDE] + 8 * row[lo.BLOCK_LEFT])
    for x in range(row[lo.BLOCK_LEFT], row[lo.BLOCK_RIGHT]):
        code = advanced(table, pf.CODE_FIELDS * i64(parts[notes + x]))
        following = at + code[pf.SIZE]
        if following > limit:
            return False
        unpack_block(advanced(parts, at), code, u64(parts[notes + across + x]), target, u64(row[lo.STRIDE]))
        at, target = following, advanced(target, 8)
    return True


@njit
def _unpack_rows(header: Any, layout: Any, mcu_row: int, parts: Any, part: Any, table: Any, planes: Any) -> Any:
    """Unpack the needed blocks of a row of MCUs.

    ``part``: where it begins in `parts`, the place in its directory of its next row of blocks, where its blocks end.
    Returns the place of the row behind; -1: the part is damaged.
    """
    start, directory, limit = part
    for c in range(header[hd.COMPONENTS]):
        row, v = layout[c], header[hd.COMPONENT + hd.COMPONENT_FIELDS * c + hd.V_SAMP]
        down, across = (row[lo.ROWS] + 7) >> 3, (row[lo.COLUMNS] + 7) >> 3
        for y in range(mcu_row * v, min((mcu_row + 1) * v, down)):
            if row[lo.BLOCK_TOP] <= y < row[lo.BLOCK_BOTTOM]:
                if directory + 4 > limit:
                    return i64(-1)
                at = start + _word_at(parts, directory)
                if not _unpack_row(parts, at, limit, table, row, planes, y, across):
                    return i64(-1)
            directory += 4
    return directory


@njit
def unpack(
    meta: Any,
    header: Any,
    layout: Any,
    codes: Any,
    parts: Any,
    first: int,
    top: int,
    left: int,
    planes: Any,
    spare: Any,
    out: Any,
) -> bool:
    """Make the pixels of the region that `needed` has laid out; False: the parts are damaged.

    Args:
        meta, header, layout: as for `needed`, which must have accepted them. codes: planes_fields.code_table().
        parts: uint8[n], the needed parts one after another, from number `first` on.
        planes, spare: uint8[the result of `needed`] or more, and as for decode_scan, working memory.
        out: uint8[height, width, 1 or 3].
    """
    band = i64(meta[pf.BAND])
    _, _, first_row, last_row, lag = needed_mcus(header, layout)
    source, target, table = pointer_to(parts), pointer_to(planes), pointer_to(codes)
    finished, bottom = top, top + out.shape[0]
    start, directory, behind = i64(0), i64(0), i64(0)
    for mcu_row in range(first * band, last_row + 1):
        if mcu_row % band == 0:
            start, directory = behind, behind + 4
            behind = start + _word_at(source, start) if directory <= len(parts) else i64(-1)
            if not 0 <= behind <= len(parts):
                return False
        part = start, directory, behind - pf.SLACK
        directory = _unpack_rows(header, layout, mcu_row, source, part, table, target)
        if directory < 0:
            return False
        ready = bottom if mcu_row == last_row else min((mcu_row + 1) * 8 * header[hd.V_MAX] - lag, bottom)
        if mcu_row >= first_row and ready > finished:
            finish_rows(header, layout, target, finished, ready, top, left, out, pointer_to(spare))
            finished = ready
    return True
