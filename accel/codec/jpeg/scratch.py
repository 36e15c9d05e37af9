"""The decoder's working memory, which whoever calls it keeps; nothing here imports numba."""

from __future__ import annotations

import numpy as np

from .header_fields import MAX_BLOCKS_IN_MCU

LOOK = 10  # bits that index a table (see tables.py)
LOOK_SIZE = 1 << LOOK
CODES_SIZE = 34 + 256  # tables.SYMBOLS, and the symbols
SLOT_SIZE = 10  # numbers that describe a block of each MCU (see scan.py)
BLOCK_SIZE = 80  # 64 coefficients, and one dump (64) for those past the end
ORDER_SIZE = 128
CHUNK = 32  # pixels that are upsampled and coloured together
SPARE = 3 * CHUNK  # bytes that a row narrower than a chunk is made in

# Behind the stream: room for one whole MCU read past its end (10 blocks of 64 symbols of 31 bits), which is noticed
# only after the MCU, and for the eight-byte loads.
SLACK = 10 * 64 * 4 + 64


def new_tables() -> tuple[np.ndarray, np.ndarray]:
    """(look, codes) for DC tables 0..3 and AC tables 4..7; a ninth row of `look` is working space.

    look: uint64[9, LOOK_SIZE]; codes: uint32[8, CODES_SIZE]
    """
    return np.empty((9, LOOK_SIZE), np.uint64), np.empty((8, CODES_SIZE), np.uint32)


def new_room() -> tuple[np.ndarray, ...]:
    """The working arrays of decode_scan: (quant, coefficients, slots, predictions, spare).

    int16[3, 64]: quantisers; int16[BLOCK_SIZE]: a block; int64[MAX_BLOCKS_IN_MCU, SLOT_SIZE]: slots; int64[3]: each
    component's last DC coefficient; uint8[SPARE]: for narrow rows
    """
    return (
        np.empty((3, 64), np.int16),
        np.empty(BLOCK_SIZE, np.int16),
        np.empty((MAX_BLOCKS_IN_MCU, SLOT_SIZE), np.int64),
        np.empty(3, np.int64),
        np.empty(SPARE, np.uint8),
    )


def full_order() -> np.ndarray:
    """uint8[ORDER_SIZE]: the place in a block by zigzag index, and the dump for every index past the end."""
    return np.concatenate([_block_order(), np.full(ORDER_SIZE - 64, 64, np.uint8)])


# Lines of a block are taken in pairs, and so a block lies in memory: a row of PAIRS after the other, each as 8 columns,
# in the same sequence, of 2 coefficients.
PAIRS = ((0, 2), (1, 3), (4, 6), (5, 7))
_SEQUENCE = [line for pair in PAIRS for line in pair]

_ZIGZAG = (
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5,
    12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28,
    35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
    58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
)  # fmt: skip


def _block_order() -> np.ndarray:
    """uint8[64]: the place in a block of the coefficients, by their zigzag index (T.81 figure A.6)."""
    rows, columns = (np.array([_SEQUENCE.index(line) for line in lines]) for lines in divmod(np.array(_ZIGZAG), 8))
    order: np.ndarray = (16 * (rows // 2) + 2 * columns + rows % 2).astype(np.uint8)
    return order
