"""The quantisers, Huffman tables and block descriptions that decoding an MCU needs."""

from __future__ import annotations

from typing import Any

from numba import njit

from accel.system.native.memory import i64

from . import header_fields as hd
from . import layout_fields as lo
from .idct import MAX_QUANT
from .scratch import CODES_SIZE, LOOK_ROW, SLOT_SIZE
from .tables import build

# Places in a slot, the description of one block of each MCU (int64[MAX_BLOCKS_IN_MCU, SLOT_SIZE]).
# OWNER: the component; *_LOOK, *_CODES: where its tables' rows begin in `look` and in `codes`; FIRST to before LAST:
# the MCU columns of this row in which the block is needed; PLACE: the first MCU's block in the planes; STEP: from there
# to the next MCU's.
OWNER, DC_LOOK, DC_CODES, AC_LOOK, AC_CODES, FIRST, LAST, PLACE, STEP, STRIDE = range(SLOT_SIZE)


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


@njit
def fill_slots(header: Any, layout: Any, mcu_row: int, slots: Any) -> int:
    """Describe the blocks of the MCUs of one row; returns the number of blocks in an MCU."""
    count = 0
    for c in range(header[hd.COMPONENTS]):
        fields = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c :]
        h, v, dc, ac = fields[hd.H_SAMP], fields[hd.V_SAMP], fields[hd.DC_TABLE], fields[hd.AC_TABLE]
        row = layout[c]
        for y in range(mcu_row * v, (mcu_row + 1) * v):
            for x in range(h):
                slot = slots[count]
                count += 1
                slot[OWNER] = c
                slot[DC_LOOK], slot[DC_CODES] = dc * LOOK_ROW, dc * CODES_SIZE
                slot[AC_LOOK], slot[AC_CODES] = ac * LOOK_ROW, ac * CODES_SIZE
                slot[FIRST], slot[LAST] = 0, 0
                if row[lo.BLOCK_TOP] <= y and y < row[lo.BLOCK_BOTTOM]:
                    slot[FIRST] = -(-(row[lo.BLOCK_LEFT] - x) // h)
                    slot[LAST] = -(-(row[lo.BLOCK_RIGHT] - x) // h)
                slot[PLACE] = row[lo.ORIGIN] + 8 * y % row[lo.RING] * row[lo.STRIDE] + 8 * x
                slot[STEP] = 8 * h
                slot[STRIDE] = row[lo.STRIDE]
    return count
