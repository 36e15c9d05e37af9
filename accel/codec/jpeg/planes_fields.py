"""The form of a picture's packed planes: its description, its parts, and the codes of their blocks.

A *part* is a band of rows of MCUs, so that a region reads and checks only what is in its rows:

    uint32              the size of the part in bytes
    uint32[rows]        where in the part each row of blocks begins: MCU row by MCU row, component by component
    rows of blocks      uint8[n] codes, uint8[n] least samples of the blocks, and then the blocks
    SLACK bytes         for loads of eight bytes that reach beyond the blocks

A block of 8 x 8 samples is 8 rows of 8 numbers of a few bits, the first one lowest.  Its code says how many bits, and
what the numbers are.  *Level*: the samples less the least one.  *Steep*: in the first row, the samples less that row's
least one; in each other row, the differences to the row above, plus half of their range.  All numbers are modulo 256.
"""

from __future__ import annotations

import numpy as np

# Places in a description (uint16[META_SIZE]).  BAND: MCU rows of a part; SAMPLING: h and v of each component.
FORM, WIDTH, HEIGHT, COMPONENTS, COLOUR, BAND, SAMPLING = range(7)
META_SIZE = SAMPLING + 2 * 3
VERSION = 0x5001
PARTS = 12  # at most: with fewer, more is read outside the region; more take longer to check

SLACK = 8
WIDTHS = 9  # 0 to 8 bits
STEEP = WIDTHS  # a level block's code is its width; a steep one's STEEP + WIDTHS * the first row's + the other rows'

# Places in a code's row of the table (uint64[256, CODE_FIELDS]).  FIRST_*: for the first row, OTHER_*: for the others;
# MASK: `width` bits of each byte; KEEP: all ones if rows are differences to the row above; BIAS: added to each byte of
# the other rows (with the least sample, if they are no differences); SIZE: bytes of the block.
FIRST_WIDTH, FIRST_MASK, OTHER_WIDTH, OTHER_MASK, KEEP, BIAS, SIZE = range(7)
CODE_FIELDS = 8
NEVER = 1 << 40  # the size of a block whose code does not exist

# The parameters of planes_kernels.needed and planes_kernels.unpack, for their callers, and places of some.
NEEDED = "u2[1] i8[1]w i8[2]w int int int int i8[1]w"
UNPACK = "u2[1] i8[1] i8[2] u8[2] u1[1] int int int u1[1]w u1[1]w u1[3]w"
BOX, FROM, PLANES, OUT = 3, 5, 8, 10

_BYTES = 0x0101010101010101


def code_table() -> np.ndarray:
    """The table of all codes, uint64[256, CODE_FIELDS]."""
    table = np.zeros((256, CODE_FIELDS), np.uint64)
    table[:, SIZE] = NEVER
    for width in range(WIDTHS):
        table[width] = _row(width, width, 0, 0)
        for first in range(WIDTHS):
            half = 1 << width - 1 if width else 0
            table[STEEP + WIDTHS * first + width] = _row(first, width, 2**64 - 1, _BYTES * (-half % 256))
    return table


def _row(first: int, other: int, keep: int, bias: int) -> list[int]:
    masks = [_BYTES * ((1 << width) - 1) for width in (first, other)]
    return [first, masks[0], other, masks[1], keep, bias, first + 7 * other, 0]
