"""One sequential scan: every MCU up to the last row needed, every needed block to its plane, rows out as they are done."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from . import header as hd
from . import layout as lo
from .entropy import BAD, BLOCK_SIZE, ORDER_SIZE, read_ac, read_dc, refill
from .idct import LOW, MAX_QUANT, block_order, idct_block, idct_low
from .memory import advanced, pointer_to
from .rows import finish_rows
from .stream import unstuff
from .tables import CODES_SIZE, LOOK_SIZE, build

ORDER = np.concatenate([block_order(), np.full(ORDER_SIZE - 64, 64, np.uint8)])
DC_LIMIT = 1 << 15

# Places in a slot, the description of one block of each MCU (int64[MAX_BLOCKS_IN_MCU, SLOT_SIZE]).
(
    OWNER,  # component
    DC_TABLE,
    AC_TABLE,
    FIRST,  # MCU columns [FIRST, LAST) of the present row need this block
    LAST,
    PLACE,  # in the planes, of the first MCU's block; STEP to the next
    STEP,
    STRIDE,
) = range(8)
SLOT_SIZE = 8


@njit  # type: ignore[misc]
def _quantisers(data: Any, header: Any, order: Any, quant: Any) -> bool:
    for c in range(header[hd.COMPONENTS]):
        at = header[hd.QUANT_AT + header[hd.COMPONENT + hd.COMPONENT_FIELDS * c + hd.QUANT]]
        wide = data[at] >> 4
        for k in range(64):
            value = np.int64(data[at + 1 + k])
            if wide:
                value = np.int64(data[at + 1 + 2 * k]) << 8 | np.int64(data[at + 2 + 2 * k])
            if value > MAX_QUANT:
                return False
            quant[c, order[k]] = value
    return True


@njit  # type: ignore[misc]
def _huffman(data: Any, header: Any, look: Any, codes: Any) -> bool:
    made = 0
    for c in range(header[hd.COMPONENTS]):
        for field in (hd.DC_TABLE, hd.AC_TABLE):
            table = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c + field]
            if not made >> table & 1 and not build(data, header[hd.HUFFMAN_AT + table], table, look, codes):
                return False
            made |= 1 << table
    return True


@njit  # type: ignore[misc]
def _fill_slots(header: Any, layout: Any, mcu_row: int, slots: Any) -> int:
    """Describe the blocks of the MCUs of one row; returns how many an MCU has."""
    count = 0
    for c in range(header[hd.COMPONENTS]):
        fields = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c :]
        h, v = fields[hd.H_SAMP], fields[hd.V_SAMP]
        row = layout[c]
        for y in range(mcu_row * v, (mcu_row + 1) * v):
            for x in range(h):
                slot = slots[count]
                count += 1
                slot[OWNER], slot[DC_TABLE], slot[AC_TABLE] = c, fields[hd.DC_TABLE], fields[hd.AC_TABLE]
                slot[FIRST] = slot[LAST] = 0
                if row[lo.BLOCK_TOP] <= y and y < row[lo.BLOCK_BOTTOM]:
                    slot[FIRST] = -(-(row[lo.BLOCK_LEFT] - x) // h)
                    slot[LAST] = -(-(row[lo.BLOCK_RIGHT] - x) // h)
                slot[PLACE] = row[lo.ORIGIN] + 8 * y * row[lo.STRIDE] + 8 * x
                slot[STEP] = 8 * h
                slot[STRIDE] = row[lo.STRIDE]
    return count


@njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[misc]
def decode_scan(
    data: Any, header: Any, layout: Any, top: int, left: int, look: Any, codes: Any,
    order: Any, stream: Any, ends: Any, plane: Any, out: Any,
) -> bool:  # fmt: skip
    mcu_columns = -(-header[hd.WIDTH] // (8 * header[hd.H_MAX]))
    mcu_rows = -(-header[hd.HEIGHT] // (8 * header[hd.V_MAX]))
    interval = header[hd.RESTART] if header[hd.RESTART] > 0 else mcu_columns * mcu_rows
    intervals = -(-mcu_columns * mcu_rows // interval)
    if not unstuff(pointer_to(data), header[hd.SCAN], len(data), pointer_to(stream), ends, intervals):
        return False
    quant = np.empty((3, 64), np.int16)
    if not _quantisers(data, header, order, quant) or not _huffman(data, header, look, codes):
        return False

    block_array = np.zeros(BLOCK_SIZE, np.int16)
    spare = np.empty(256, np.uint8)
    predictions = np.zeros(3, np.int64)
    slots = np.zeros((hd.MAX_BLOCKS_IN_MCU, SLOT_SIZE), np.int64)
    done, remaining = 0, interval
    end = ends[0]
    bottom = top + out.shape[0]
    finished = top
    last_row = 0
    lag = 0
    for c in range(header[hd.COMPONENTS]):
        v = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c + hd.V_SAMP]
        last_row = max(last_row, (layout[c, lo.BLOCK_BOTTOM] - 1) // v)
        if layout[c, lo.KIND] == lo.H1V2 or layout[c, lo.KIND] == lo.H2V2:
            lag = 1
    sp, pp, lp, cp, op = pointer_to(stream), pointer_to(plane), pointer_to(look), pointer_to(codes), pointer_to(order)
    block, qp, pred, slotp = pointer_to(block_array), pointer_to(quant), pointer_to(predictions), pointer_to(slots)
    buffer, bits, at = refill(sp, np.uint64(0), np.uint64(0), np.uint64(0))
    for mcu_row in range(last_row + 1):
        blocks = _fill_slots(header, layout, mcu_row, slots)
        for mcu_column in range(mcu_columns):
            if remaining == 0:
                if (np.int64(at) * 8 - np.int64(bits) + 7) >> 3 != end:
                    return False
                buffer, bits, at = refill(sp, np.uint64(0), np.uint64(0), np.uint64(end))
                predictions[:] = 0
                done += 1
                end = ends[done]
                remaining = interval
            remaining -= 1
            slot = slotp
            for _ in range(blocks):
                table = slot[DC_TABLE]
                buffer, bits, at, difference = read_dc(
                    sp, buffer, bits, at, advanced(lp, table * LOOK_SIZE), advanced(cp, table * CODES_SIZE)
                )
                prediction = pred[slot[OWNER]] + difference
                pred[slot[OWNER]] = prediction
                if prediction >= DC_LIMIT or prediction < -DC_LIMIT:
                    return False
                table = slot[AC_TABLE]
                lookp, codesp = advanced(lp, table * LOOK_SIZE), advanced(cp, table * CODES_SIZE)
                if slot[FIRST] <= mcu_column and mcu_column < slot[LAST]:
                    block[0] = prediction
                    buffer, bits, at, extent = read_ac(sp, buffer, bits, at, lookp, codesp, op, block, True)
                    place = slot[PLACE] + mcu_column * slot[STEP]
                    if extent == BAD:
                        return False
                    target, factors, stride = advanced(pp, place), advanced(qp, 64 * slot[OWNER]), np.uint64(slot[STRIDE])
                    if extent <= LOW:
                        if not idct_low(block, factors, target, stride):
                            return False
                    elif not idct_block(block, factors, target, stride):
                        return False
                else:
                    buffer, bits, at, extent = read_ac(sp, buffer, bits, at, lookp, codesp, op, block, False)
                    if extent == BAD:
                        return False
                slot = advanced(slot, SLOT_SIZE)
            if np.int64(at) > end + 8:
                return False
        ready = min((mcu_row + 1) * 8 * header[hd.V_MAX] - lag, bottom)
        if mcu_row == last_row:
            ready = bottom
        if ready > finished:
            finish_rows(header, layout, pp, finished, ready, top, left, out, pointer_to(spare))
            finished = ready
    consumed = np.int64(at) * 8 - np.int64(bits)
    if last_row == mcu_rows - 1:
        return (consumed + 7) >> 3 == end
    return (consumed + 7) >> 3 <= end
