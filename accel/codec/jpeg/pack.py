"""Packing the planes of a whole picture to parts, in the form that planes_fields.py describes."""

from __future__ import annotations

from typing import Any

from numba import njit

from accel.system.native.memory import advanced, i64, pointer_to, u64

from . import header_fields as hd
from . import layout_fields as lo
from . import planes_fields as pf
from .header import mcus
from .packed_block import bit_length, pack_block, survey_blocks


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
def pack(header: Any, layout: Any, codes: Any, planes: Any, sums: Any, meta: Any, parts: Any, ends: Any) -> int:
    """Pack the planes that a decode of a whole picture has left; returns the number of parts.

    Args:
        header, layout, planes: those of that decode; samples beyond the picture's edges are changed.
        codes: planes_fields.code_table().
        sums: uint64[8], working memory.
        meta: uint16[META_SIZE], to be filled.
        parts: uint8[n], to be filled; 1/32 larger than the planes.
        ends: int64[PARTS], to be filled with the end of each part.
    """
    _, rows = mcus(header)
    band = -(-rows // pf.PARTS)
    meta[pf.FORM], meta[pf.BAND] = pf.VERSION, band
    meta[pf.WIDTH], meta[pf.HEIGHT] = header[hd.WIDTH], header[hd.HEIGHT]
    meta[pf.COMPONENTS], meta[pf.COLOUR] = header[hd.COMPONENTS], header[hd.COLOUR]
    meta[pf.SAMPLING :] = 0
    table, source, target = pointer_to(codes), pointer_to(planes), pointer_to(parts)
    surveyed = pointer_to(sums)
    count, start, at = 0, i64(0), i64(0)
    for mcu_row in range(rows):
        if mcu_row % band == 0:
            start, at = at, at + 4
            directory = at
            for c in range(header[hd.COMPONENTS]):
                v = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c + hd.V_SAMP]
                at += 4 * max(min((mcu_row + band) * v, layout[c, lo.BLOCK_BOTTOM]) - mcu_row * v, 0)
        for c in range(header[hd.COMPONENTS]):
            fields, row = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c :], layout[c]
            v, across, stride = fields[hd.V_SAMP], row[lo.BLOCK_RIGHT], u64(row[lo.STRIDE])
            meta[pf.SAMPLING + 2 * c], meta[pf.SAMPLING + 2 * c + 1] = fields[hd.H_SAMP], v
            for y in range(mcu_row * v, min((mcu_row + 1) * v, row[lo.BLOCK_BOTTOM])):
                _put_word(parts, directory, at - start)
                directory += 4
                _repeat_edges(row, planes, 8 * y, across)
                place = advanced(source, row[lo.ORIGIN] + 8 * y * row[lo.STRIDE])
                notes = at
                at += 2 * across
                for x in range(across):
                    if x & 7 == 0:
                        survey_blocks(place, stride, surveyed)
                    code, least, size = _code(surveyed[x & 7])
                    target[notes + x], target[notes + across + x] = code, least
                    described = advanced(table, pf.CODE_FIELDS * code)
                    pack_block(place, stride, described, least, advanced(target, at))
                    at += size
                    place = advanced(place, 8)
        if (mcu_row + 1) % band == 0 or mcu_row + 1 == rows:
            parts[at : at + pf.SLACK] = 0
            at += pf.SLACK
            _put_word(parts, start, at - start)
            ends[count] = at
            count += 1
    return count
