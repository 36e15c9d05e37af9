"""How many points a file's index has, and how many bits each of them takes."""

from __future__ import annotations

from typing import Any

from numba import njit

from . import header_fields as hd
from . import index_fields as ix
from .memory import i64, u64
from .packed_block import bit_length

# Bits of the difference of two DC coefficients that are quantised by 1; each doubling of the quantiser saves one.  So
# differences of half the range of brightness fit, and of a quarter of the range of colours.
_LUMA, _CHROMA = 12, 11
_LEAST, _LEAST_PLACE, _MOST_PLACE = 6, 10, 20
_ROOM = 4  # a point may be so many times as far from the one before it as it is on average


@njit
def group_words(header: Any, count: Any) -> Any:
    """The words of a group of `count` points."""
    return i64(2) + header[hd.COMPONENTS] + (((count - 1) * header[hd.POINT_BITS] + 15) >> 4)


@njit
def words_of_points(header: Any, count: Any) -> Any:
    """The words of the first `count` points."""
    words = count // ix.GROUP * group_words(header, ix.GROUP)
    rest = count % ix.GROUP
    return words + group_words(header, rest) if rest > 0 else words


@njit
def _difference_bits(data: Any, header: Any) -> Any:
    """Set the bits that differences of DC coefficients take; returns their sum."""
    total = i64(0)
    for c in range(header[hd.COMPONENTS]):
        at = header[hd.QUANT_AT + header[hd.COMPONENT + hd.COMPONENT_FIELDS * c + hd.QUANT]]
        factor = i64(data[at + 1])
        if data[at] >> 4:
            factor = factor << 8 | i64(data[at + 2])
        bits = (_LUMA if c == 0 else _CHROMA) + 1 - i64(bit_length(u64(max(factor, 1))))
        header[hd.DC_BITS + c] = max(bits, _LEAST)
        total += header[hd.DC_BITS + c]
    return total


@njit
def lay_out_index(data: Any, header: Any, columns: Any, rows: Any) -> None:
    """Set the spacing of the index's points, in MCUs, the bits that they take, and the index's size in bytes.

    The spacing is the least with which the index takes at most its share of the file's bytes.
    """
    size, count = len(data), columns * rows
    most = size // ix.SHARE - ix.AROUND
    if most < 2 * (ix.POINTS + ix.SLACK) or size >= ix.MAX_BYTES:
        return
    differences = _difference_bits(data, header)
    average = 8 * size // count + 1
    spacing = -(-columns // ix.SEGMENTS)
    while spacing < min(count, 1 << 16):
        place = min(max(i64(bit_length(u64(_ROOM * spacing * average))), _LEAST_PLACE), _MOST_PLACE)
        header[hd.PLACE_BITS], header[hd.POINT_BITS] = place, place + differences
        words = ix.POINTS + ix.SLACK + words_of_points(header, -(-count // spacing))
        taken = 8 * -(-words // 4)
        if taken <= most:
            header[hd.SPACING], header[hd.INDEX_BYTES] = spacing, taken
            return
        spacing = max(spacing + 1, spacing * taken // most)
