"""A region's pixels from the parts that a picture was packed to, in the form of planes_fields.py.

Parts and descriptions may hold any bytes: everything in them is checked before it is used.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from accel.codec.header import LARGEST_SIDE
from accel.system.native.memory import advanced, i64, pointer_to, u64

from . import header_fields as hd
from . import layout_fields as lo
from . import planes_fields as pf
from .layout import needed_mcus
from .layout import region as lay_out
from .packed_block import unpack_block
from .rows import finish_rows


@njit
def _describe(meta: Any, header: Any) -> bool:
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
    for c in range(count):
        fields = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c :]
        if header[hd.H_MAX] % fields[hd.H_SAMP] != 0 or header[hd.V_MAX] % fields[hd.V_SAMP] != 0:
            return False
    return True


@njit
def needed(
    meta: Any, header: Any, layout: Any, top: int, left: int, height: int, width: int, span: Any
) -> Any:  # fmt: skip
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
def _word(parts: Any, at: Any) -> Any:
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
def unpack(
    meta: Any, header: Any, layout: Any, codes: Any, parts: Any, first: int, top: int, left: int, planes: Any,
    spare: Any, out: Any,
) -> bool:  # fmt: skip
    """Make the pixels of the region that `needed` has laid out; False: the parts are damaged.

    Args:
        meta, header, layout: as for `needed`, which must have accepted them.
        codes: planes_fields.code_table().
        parts: uint8[n], the needed parts one after another, from number `first` on.
        planes: uint8[the result of `needed`] or more, working memory.
        spare: as for decode_scan.
        out: uint8[height, width, 1 or 3].
    """
    band = i64(meta[pf.BAND])
    _, _, first_row, last_row, lag = needed_mcus(header, layout)
    source, target, table = pointer_to(parts), pointer_to(planes), pointer_to(codes)
    finished, bottom = top, top + out.shape[0]
    start, limit, directory, behind = i64(0), i64(0), i64(0), i64(0)
    for mcu_row in range(first * band, last_row + 1):
        if mcu_row % band == 0:
            start = behind
            if start + 4 > len(parts):
                return False
            behind = start + _word(source, start)
            limit, directory = behind - pf.SLACK, start + 4
            if behind > len(parts):
                return False
        for c in range(header[hd.COMPONENTS]):
            fields, row = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c :], layout[c]
            v, down, across = fields[hd.V_SAMP], (row[lo.ROWS] + 7) >> 3, (row[lo.COLUMNS] + 7) >> 3
            for y in range(mcu_row * v, min((mcu_row + 1) * v, down)):
                if row[lo.BLOCK_TOP] <= y and y < row[lo.BLOCK_BOTTOM]:
                    if directory + 4 > limit:
                        return False
                    at = start + _word(source, directory)
                    if not _unpack_row(source, at, limit, table, row, target, y, across):
                        return False
                directory += 4
        ready = bottom if mcu_row == last_row else min((mcu_row + 1) * 8 * header[hd.V_MAX] - lag, bottom)
        if mcu_row >= first_row and ready > finished:
            finish_rows(header, layout, target, finished, ready, top, left, out, pointer_to(spare))
            finished = ready
    return True
