"""The sizes of the decoder's working memory, and the order of a block's coefficients in it."""

from __future__ import annotations

import numpy as np

LOOK = 11  # bits that index a table (see tables.py)
LOOK_SIZE = 1 << LOOK
LOOK_ROW = LOOK_SIZE + LOOK_SIZE // 8  # 64-bit words of a table: the entries, and a byte for each
CODES_SIZE = 34 + 256 + 17  # up to tables.SYMBOLS, the symbols, and tables.COUNTS
SLOT_SIZE = 10  # numbers that describe a block of each MCU (see walk.py)
BLOCK_SIZE = 80  # 64 coefficients, and one dump (64) for those past the end
CHUNK = 32  # pixels that are upsampled and coloured together
STATE_SIZE = 16  # numbers that a walk goes on with (see scan.py)
TRAIL = 4  # numbers that a walk leaves at a point (see walk.py)
AT_ONCE = 16  # places of stuffed zeros that are compared at once, also beyond the last one (see points.py)
SPARE = 3 * CHUNK  # bytes of working memory for a row narrower than a chunk

# Bytes behind the stream: for one whole MCU read past its end (10 blocks of 64 symbols of 31 bits), which is noticed
# only after the MCU, and for the eight-byte loads.
SLACK = 10 * 64 * 4 + 64


# The lines of a block are used in pairs, and stored so: for each of PAIRS (rows), 8 columns in the same sequence, each
# of 2 coefficients.
PAIRS = ((0, 2), (1, 3), (4, 6), (5, 7))
_SEQUENCE = [line for pair in PAIRS for line in pair]

_ZIGZAG = (
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5,
    12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28,
    35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
    58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
)  # fmt: skip


def block_order() -> np.ndarray:
    """The place in a block by zigzag index (T.81 figure A.6), uint8[128]; the dump for every index past the end."""
    rows, columns = (np.array([_SEQUENCE.index(line) for line in lines]) for lines in divmod(np.array(_ZIGZAG), 8))
    return np.append(16 * (rows // 2) + 2 * columns + rows % 2, [64] * 64).astype(np.uint8)


# jidctint.c's constants combined for each of PAIRS, by line of output: its even part, and its odd part.
IDCT_EVEN = (
    ((8192, 10703), (8192, 4433)),
    ((8192, 4433), (-8192, -10704)),
    ((8192, -4433), (-8192, 10704)),
    ((8192, -10703), (8192, -4433)),
)
IDCT_ODD = (
    ((11363, 9633), (6437, 2260)),
    ((9633, -2259), (-11362, -6436)),
    ((6437, -11362), (2261, 9633)),
    ((2260, -6436), (9633, -11363)),
)
IDCT_PAIRS = sorted({pair for line in IDCT_EVEN + IDCT_ODD for pair in line})
CONSTANT_BITS = 13
PASS1_BITS = 2
# Added before the columns' sums are rounded, and before the rows' are, which also centres the samples on 128.
IDCT_BIASES = (1 << CONSTANT_BITS - PASS1_BITS - 1, (257 << CONSTANT_BITS + PASS1_BITS + 3) >> 1)


def idct_tables() -> np.ndarray:
    """Vectors of 32 bytes, int16[n, 16]: each of IDCT_PAIRS repeated, then each of IDCT_BIASES repeated, in 32 bits."""
    tables = np.empty((len(IDCT_PAIRS) + len(IDCT_BIASES), 8, 2), np.int16)
    tables[: len(IDCT_PAIRS)] = np.array(IDCT_PAIRS)[:, None]
    tables.view(np.int32)[len(IDCT_PAIRS) :, :, 0] = np.array(IDCT_BIASES)[:, None]
    return tables.reshape(-1, 16)
