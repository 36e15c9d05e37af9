"""Walking MCUs: skipping them, or decoding those of their blocks that are needed.

Both begin and end with the window of entropy.py, and return whether the stream was valid.  Before the MCU `until` and
those that follow it by `gaps` they write TRAIL numbers to the trail: the bit of the stream, and the predictions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from accel.system.native.memory import advanced, i64, own_registers, u64

from . import header_fields as hd
from . import layout_fields as lo
from .entropy import BAD, read_ac, read_dc
from .idct import LOW, idct_block, idct_flat, idct_low
from .scratch import BLOCK_SIZE, CODES_SIZE, LOOK_ROW, SLOT_SIZE, TRAIL

DC_LIMIT = 1 << 15


class Tools(NamedTuple):
    """Pointers to what a walk works with.

    The stream; where its intervals end, and its stuffed zeros (entropy.py); the rows of `look` and of `codes`
    (tables.py); the quantisers; the block order; the inverse DCT's tables; two blocks of zeros; the slots; the state
    (scan.py), which begins with the predictions; the planes; the trail; and memory for a narrow row.
    """

    stream: Any
    ends: Any
    stuffed: Any
    looks: Any
    codes: Any
    quantisers: Any
    order: Any
    tables: Any
    blocks: Any
    slots: Any
    state: Any
    planes: Any
    trail: Any
    spare: Any


# Places in a slot, the description of one block of each MCU (SLOT_SIZE numbers).
# OWNER: the component; *_LOOK, *_CODES: where its tables' rows begin in `look` and in `codes`; FIRST to before LAST:
# the MCU columns of this row in which the block is needed; PLACE: the first MCU's block in the planes; STEP: from there
# to the next MCU's.
OWNER, DC_LOOK, DC_CODES, AC_LOOK, AC_CODES, FIRST, LAST, PLACE, STEP, STRIDE = range(SLOT_SIZE)


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
                slot = advanced(slots, SLOT_SIZE * count)
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


@njit(forceinline=True)
def _leave(trail: Any, bits: Any, at: Any, prediction: Any) -> Any:
    trail[0] = i64(at) * 8 - i64(bits)
    for c in range(3):
        trail[1 + c] = prediction[c]
    return advanced(trail, TRAIL)


@njit(forceinline=True)
def _transform(block: Any, extent: Any, quant: Any, tables: Any, target: Any, stride: Any) -> Any:
    """Transform a block, if its `extent` is not 0: then there is none."""
    if extent == 0:
        return True
    if extent == 1:
        return idct_flat(block, quant, target, stride)
    if extent <= LOW:
        return idct_low(block, quant, tables, target, stride)
    return idct_block(block, quant, tables, target, stride)


@njit(forceinline=True)
def _read_dc(tools: Any, slot: Any, buffer: Any, bits: Any, at: Any) -> Any:
    """Read a block's DC coefficient: (buffer, bits, at, coefficient); it is beyond DC_LIMIT if it is not valid."""
    look, codes = advanced(tools.looks, slot[DC_LOOK]), advanced(tools.codes, slot[DC_CODES])
    buffer, bits, at, difference = read_dc(tools.stream, buffer, bits, at, look, codes)
    dc = tools.state[slot[OWNER]] + difference
    tools.state[slot[OWNER]] = dc
    return buffer, bits, at, dc


@njit(forceinline=True)
def _read_ac(tools: Any, slot: Any, buffer: Any, bits: Any, at: Any, block: Any, keep: bool) -> Any:
    look, codes = advanced(tools.looks, slot[AC_LOOK]), advanced(tools.codes, slot[AC_CODES])
    return read_ac(tools.stream, buffer, bits, at, look, codes, tools.order, block, keep)


@njit(forceinline=True)
def _walk(
    tools: Any, window: Any, end: Any, blocks: Any, column: Any, stop: Any, until: Any, gaps: Any, is_kept: bool
) -> Any:
    buffer, bits, at = window
    trail, block, other = tools.trail, tools.blocks, advanced(tools.blocks, BLOCK_SIZE)
    # The last block read: it is transformed after the next one has begun, when its stores have completed.
    last, quantiser, target, stride = i64(0), tools.quantisers, tools.planes, u64(0)
    for mcu_column in range(column, stop):
        if mcu_column == until:
            trail = _leave(trail, bits, at, tools.state)
            until += gaps[0]
            gaps = advanced(gaps, 1)
        slot = tools.slots
        for _ in range(blocks):
            buffer, bits, at, dc = _read_dc(tools, slot, buffer, bits, at)
            good = -DC_LIMIT < dc < DC_LIMIT
            if is_kept and slot[FIRST] <= mcu_column < slot[LAST]:
                block[0] = dc
                good &= _transform(other, last, quantiser, tools.tables, target, stride)
                buffer, bits, at, extent = _read_ac(tools, slot, buffer, bits, at, block, True)
                last, block, other = extent, other, block
                target = advanced(tools.planes, slot[PLACE] + mcu_column * slot[STEP])
                quantiser, stride = advanced(tools.quantisers, 64 * slot[OWNER]), u64(slot[STRIDE])
            else:
                buffer, bits, at, extent = _read_ac(tools, slot, buffer, bits, at, block, False)
            if not good or extent == BAD:
                return buffer, bits, at, False
            slot = advanced(slot, SLOT_SIZE)
        if i64(at) > end + 8:
            return buffer, bits, at, False
    return buffer, bits, at, _transform(other, last, quantiser, tools.tables, target, stride)


@njit
def skip(tools: Any, window: Any, end: Any, blocks: Any, column: Any, stop: Any, until: Any, gaps: Any) -> Any:
    """Walk the MCUs `column` to before `stop` of an interval that ends at `end`: (buffer, bits, at, good).

    `blocks`: of an MCU.
    """
    own_registers()
    return _walk(tools, window, end, blocks, column, stop, until, gaps, False)


@njit
def keep(tools: Any, window: Any, end: Any, blocks: Any, column: Any, stop: Any, until: Any, gaps: Any) -> Any:
    """The same, and decode needed blocks to the planes."""
    own_registers()
    return _walk(tools, window, end, blocks, column, stop, until, gaps, True)
