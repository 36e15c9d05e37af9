"""A strict parser of the markers before the scan (ITU T.81 annex B).

It refuses everything unusual, and Pillow then decides what it means.  (Pillow also reads metadata, and may refuse a
file because of its Photoshop or ICC segments; those are skipped here.)
"""

from __future__ import annotations

from typing import Any

from numba import njit
from numba.extending import register_jitable

from accel.codec.header import begins, frame
from accel.system.native.memory import i64, u16

from . import header_fields as hd
from .points import lay_out_index, mcus

register_jitable(begins)
register_jitable(frame)


@njit
def _quantisation_tables(data: Any, at: int, end: int, header: Any) -> bool:
    while at < end:
        precision, identity = data[at] >> 4, i64(data[at] & 15)
        size = 1 + 64 * (1 + i64(precision))
        if precision > 1 or identity > 3 or at + size > end:
            return False
        header[hd.QUANT_AT + identity] = at
        at += size
    return True


@njit
def _huffman_tables(data: Any, at: int, end: int, header: Any) -> bool:
    while at < end:
        table_class, identity = i64(data[at] >> 4), i64(data[at] & 15)
        if table_class > 1 or identity > 3 or at + 17 > end:
            return False
        symbols = 0
        for length in range(16):
            symbols += i64(data[at + 1 + length])
        if symbols > 256 or at + 17 + symbols > end:
            return False
        header[hd.HUFFMAN_AT + 4 * table_class + identity] = at + 1
        at += 17 + symbols
    return True


@njit
def _frame(data: Any, at: int, end: int, header: Any) -> bool:
    count, height, width = frame(data, at, end - at)
    if count == 0 or header[hd.COMPONENTS] != 0 or height * width > hd.MAX_PIXELS:
        return False
    header[hd.HEIGHT], header[hd.WIDTH], header[hd.COMPONENTS] = height, width, count
    blocks = 0
    for c in range(count):
        fields = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c :]
        entry = at + 6 + 3 * c
        fields[hd.IDENTIFIER] = data[entry]
        h, v = i64(data[entry + 1] >> 4), i64(data[entry + 1] & 15)
        fields[hd.QUANT] = data[entry + 2]
        if h < 1 or h > 4 or v < 1 or v > 4 or fields[hd.QUANT] > 3:
            return False
        if count == 1:  # a scan of one component is never interleaved, whatever its factors (T.81 A.2.2)
            h = v = 1
        fields[hd.H_SAMP], fields[hd.V_SAMP] = h, v
        header[hd.H_MAX], header[hd.V_MAX] = max(header[hd.H_MAX], h), max(header[hd.V_MAX], v)
        blocks += h * v
    return are_factors_whole(header) and _are_identifiers_different(header) and blocks <= hd.MAX_BLOCKS_IN_MCU


@njit
def are_factors_whole(header: Any) -> bool:
    """Whether each component's sampling factors divide the largest ones."""
    for c in range(header[hd.COMPONENTS]):
        fields = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c :]
        if header[hd.H_MAX] % fields[hd.H_SAMP] != 0 or header[hd.V_MAX] % fields[hd.V_SAMP] != 0:
            return False
    return True


@njit
def _are_identifiers_different(header: Any) -> bool:
    for c in range(header[hd.COMPONENTS]):
        for other in range(c):
            first, second = hd.COMPONENT + hd.COMPONENT_FIELDS * other, hd.COMPONENT + hd.COMPONENT_FIELDS * c
            if header[first + hd.IDENTIFIER] == header[second + hd.IDENTIFIER]:
                return False
    return True


@njit
def _scan(data: Any, at: int, end: int, header: Any) -> bool:
    count = header[hd.COMPONENTS]
    if count == 0 or end - at != 4 + 2 * count or data[at] != count:
        return False
    for c in range(count):
        fields = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c :]
        entry = at + 1 + 2 * c
        fields[hd.DC_TABLE], fields[hd.AC_TABLE] = data[entry + 1] >> 4, 4 + i64(data[entry + 1] & 15)
        if data[entry] != fields[hd.IDENTIFIER] or fields[hd.DC_TABLE] > 3 or fields[hd.AC_TABLE] > 7:
            return False
        if header[hd.HUFFMAN_AT + fields[hd.DC_TABLE]] == 0 or header[hd.HUFFMAN_AT + fields[hd.AC_TABLE]] == 0:
            return False
        if header[hd.QUANT_AT + fields[hd.QUANT]] == 0:
            return False
    return bool(data[end - 3] == 0 and data[end - 2] == 63 and data[end - 1] == 0)


@njit
def _segment(data: Any, marker: int, at: int, end: int, header: Any) -> Any:
    """Read a segment before the scan, data[at:end], into `header`; False: it is not a usual one."""
    if marker == 0xDB:
        return _quantisation_tables(data, at, end, header)
    if marker == 0xC4:
        return _huffman_tables(data, at, end, header)
    if marker == 0xC0 or marker == 0xC1:
        return _frame(data, at, end, header)
    if marker == 0xDD:
        header[hd.RESTART] = u16(data, at) if end - at == 2 else 0
        return end - at == 2
    if marker == 0xE0 and begins(data, at, end, (74, 70, 73, 70)):  # "JFIF"
        header[hd.JFIF] |= end - at >= 14 and data[at + 4] == 0
        return end - at >= 14
    if marker == 0xEE and begins(data, at, end, (65, 100, 111, 98, 101)):  # "Adobe"
        header[hd.ADOBE] = data[at + 11] if end - at >= 12 else -1
        return end - at >= 12
    return 0xE0 <= marker <= 0xEF or marker == 0xFE


@njit
def _colour(header: Any) -> int:
    """The colour space, as default_decompress_parms of libjpeg-turbo's jdapimin.c finds it."""
    if header[hd.COMPONENTS] == 1:
        return hd.GREY
    rgb = header[hd.ADOBE] <= 0
    for c in range(3 if header[hd.ADOBE] < 0 else 0):  # without an Adobe marker, by the components' letters
        rgb &= header[hd.COMPONENT + hd.COMPONENT_FIELDS * c + hd.IDENTIFIER] == (82, 71, 66)[c]
    return hd.RGB if rgb and header[hd.JFIF] == 0 else hd.YCC


@njit
def parse(data: Any, header: Any) -> bool:
    """Fill `header` (int64[HEADER_SIZE]) from `data` (uint8[n]); False: this decoder does not decode the file."""
    header[:] = 0
    header[hd.ADOBE] = -1
    size = len(data)
    if size < 4 or data[0] != 0xFF or data[1] != 0xD8:
        return False
    at, marker = 2, 0
    while marker != 0xDA:
        while at + 1 < size and data[at] == 0xFF and data[at + 1] == 0xFF:
            at += 1
        if at + 4 > size or data[at] != 0xFF:
            return False
        marker, begin, at = i64(data[at + 1]), at + 4, at + 2 + u16(data, at + 2)
        if at < begin or at > size:
            return False
        good = _scan(data, begin, at, header) if marker == 0xDA else _segment(data, marker, begin, at, header)
        if not good:
            return False
    header[hd.SCAN] = at
    columns, rows = mcus(header)
    header[hd.INTERVALS] = -(-(columns * rows) // header[hd.RESTART]) if header[hd.RESTART] > 0 else 1
    lay_out_index(data, header, columns, rows)
    header[hd.COLOUR] = _colour(header)
    return True
