"""From the first byte to the start of the scan: the markers of ITU T.81 annex B, strictly read.

Whatever is unusual makes the parser say no; Pillow, which is asked next, then decides what it means.  (Pillow also
reads metadata, and may refuse a file for what its Photoshop or ICC segments hold; those are skipped here.)
"""

from __future__ import annotations

from typing import Any

from numba import njit

from accel.codec.header import LARGEST_SIDE

from .header_fields import (
    AC_TABLE,
    COLOUR,
    COMPONENT,
    COMPONENT_FIELDS,
    COMPONENTS,
    DC_TABLE,
    GREY,
    H_MAX,
    H_SAMP,
    HEIGHT,
    HUFFMAN_AT,
    IDENTIFIER,
    INTERVALS,
    MAX_BLOCKS_IN_MCU,
    MAX_PIXELS,
    QUANT,
    QUANT_AT,
    RESTART,
    RGB,
    SCAN,
    V_MAX,
    V_SAMP,
    WIDTH,
    YCC,
)
from .memory import i64


@njit
def _u16(data: Any, at: int) -> Any:
    return (i64(data[at]) << 8) | i64(data[at + 1])


@njit
def _quantisation_tables(data: Any, at: int, end: int, header: Any) -> bool:
    while at < end:
        precision, identity = data[at] >> 4, i64(data[at] & 15)
        size = 1 + 64 * (1 + i64(precision))
        if precision > 1 or identity > 3 or at + size > end:
            return False
        header[QUANT_AT + identity] = at
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
        header[HUFFMAN_AT + 4 * table_class + identity] = at + 1
        at += 17 + symbols
    return True


@njit
def _frame(data: Any, at: int, end: int, header: Any) -> bool:
    if end - at < 6 or data[at] != 8 or header[COMPONENTS] != 0:
        return False
    header[HEIGHT], header[WIDTH] = _u16(data, at + 1), _u16(data, at + 3)
    count = i64(data[at + 5])
    if header[HEIGHT] == 0 or header[WIDTH] == 0 or header[HEIGHT] * header[WIDTH] > MAX_PIXELS:
        return False
    if max(header[HEIGHT], header[WIDTH]) > LARGEST_SIDE:
        return False
    if (count != 1 and count != 3) or end - at != 6 + 3 * count:
        return False
    header[COMPONENTS] = count
    blocks = 0
    for c in range(count):
        fields = header[COMPONENT + COMPONENT_FIELDS * c :]
        entry = at + 6 + 3 * c
        fields[IDENTIFIER] = data[entry]
        h, v = i64(data[entry + 1] >> 4), i64(data[entry + 1] & 15)
        fields[QUANT] = data[entry + 2]
        if h < 1 or h > 4 or v < 1 or v > 4 or fields[QUANT] > 3:
            return False
        if count == 1:  # a scan of one component is never interleaved, whatever its factors (T.81 A.2.2)
            h = v = 1
        fields[H_SAMP], fields[V_SAMP] = h, v
        header[H_MAX], header[V_MAX] = max(header[H_MAX], h), max(header[V_MAX], v)
        blocks += h * v
    for c in range(count):
        fields = header[COMPONENT + COMPONENT_FIELDS * c :]
        if header[H_MAX] % fields[H_SAMP] != 0 or header[V_MAX] % fields[V_SAMP] != 0:
            return False
        for other in range(c):
            if header[COMPONENT + COMPONENT_FIELDS * other + IDENTIFIER] == fields[IDENTIFIER]:
                return False
    return blocks <= MAX_BLOCKS_IN_MCU


@njit
def _scan(data: Any, at: int, end: int, header: Any) -> bool:
    count = header[COMPONENTS]
    if count == 0 or end - at != 4 + 2 * count or data[at] != count:
        return False
    for c in range(count):
        fields = header[COMPONENT + COMPONENT_FIELDS * c :]
        entry = at + 1 + 2 * c
        fields[DC_TABLE], fields[AC_TABLE] = data[entry + 1] >> 4, 4 + i64(data[entry + 1] & 15)
        if data[entry] != fields[IDENTIFIER] or fields[DC_TABLE] > 3 or fields[AC_TABLE] > 7:
            return False
        if header[HUFFMAN_AT + fields[DC_TABLE]] == 0 or header[HUFFMAN_AT + fields[AC_TABLE]] == 0:
            return False
        if header[QUANT_AT + fields[QUANT]] == 0:
            return False
    return bool(data[end - 3] == 0 and data[end - 2] == 63 and data[end - 1] == 0)


@njit
def _begins(data: Any, at: int, end: int, text: tuple[int, ...]) -> bool:
    same = end - at >= len(text)
    for i in range(len(text)):
        same = same and data[at + i] == text[i]
    return same


@njit
def parse(data: Any, header: Any) -> bool:
    """Fill `header` (int64[HEADER_SIZE]) from `data` (uint8[n]); False: not a picture for this decoder.

    The colour space follows default_decompress_parms of libjpeg-turbo's jdapimin.c.
    """
    header[:] = 0
    size = len(data)
    jfif, adobe = False, -1
    if size < 4 or data[0] != 0xFF or data[1] != 0xD8:
        return False
    at = 2
    while True:
        while at + 1 < size and data[at] == 0xFF and data[at + 1] == 0xFF:
            at += 1
        if at + 4 > size or data[at] != 0xFF:
            return False
        marker, end = data[at + 1], at + 2 + _u16(data, at + 2)
        at += 4
        if end < at or end > size:
            return False
        good = True
        if marker == 0xDB:
            good = _quantisation_tables(data, at, end, header)
        elif marker == 0xC4:
            good = _huffman_tables(data, at, end, header)
        elif marker == 0xC0 or marker == 0xC1:
            good = _frame(data, at, end, header)
        elif marker == 0xDD:
            good = end - at == 2
            if good:
                header[RESTART] = _u16(data, at)
        elif marker == 0xDA:
            if not _scan(data, at, end, header):
                return False
            break
        elif marker == 0xE0 and _begins(data, at, end, (74, 70, 73, 70)):  # "JFIF"
            good = end - at >= 14
            if good:
                jfif |= data[at + 4] == 0
        elif marker == 0xEE and _begins(data, at, end, (65, 100, 111, 98, 101)):  # "Adobe"
            good = end - at >= 12
            if good:
                adobe = i64(data[at + 11])
        else:
            good = 0xE0 <= marker <= 0xEF or marker == 0xFE
        if not good:
            return False
        at = end
    header[SCAN] = end
    header[INTERVALS] = 1
    if header[RESTART] > 0:
        mcus = -(-header[WIDTH] // (8 * header[H_MAX])) * -(-header[HEIGHT] // (8 * header[V_MAX]))
        header[INTERVALS] = -(-mcus // header[RESTART])
    if header[COMPONENTS] == 1:
        header[COLOUR] = GREY
    elif jfif:
        header[COLOUR] = YCC
    elif adobe >= 0:
        header[COLOUR] = RGB if adobe == 0 else YCC
    else:
        letters = True
        for c in range(3):
            letters &= header[COMPONENT + COMPONENT_FIELDS * c + IDENTIFIER] == (82, 71, 66)[c]
        header[COLOUR] = RGB if letters else YCC
    return True
