"""One sequential scan: MCUs up to the last row needed, needed blocks to the planes, rows out as they are done."""

from __future__ import annotations

from typing import Any

from numba import njit

from . import header_fields as hd
from . import layout_fields as lo
from .entropy import BAD, read_ac, read_dc, refill
from .idct import LOW, MAX_QUANT, idct_block, idct_low
from .memory import advanced, i64, pointer_to, u64
from .rows import finish_rows
from .scratch import CODES_SIZE, LOOK_SIZE, SLOT_SIZE
from .stream import unstuff
from .tables import build

DC_LIMIT = 1 << 15

# Places in a slot, the description of one block of each MCU (int64[MAX_BLOCKS_IN_MCU, SLOT_SIZE]).
# OWNER: the component; *_LOOK, *_CODES: where its tables' rows begin in `look` and in `codes`; FIRST to before LAST:
# the MCU columns of the present row that need the block; PLACE: in the planes, of the first MCU's block; STEP: to the
# next MCU's.
OWNER, DC_LOOK, DC_CODES, AC_LOOK, AC_CODES, FIRST, LAST, PLACE, STEP, STRIDE = range(SLOT_SIZE)


@njit
def _quantisers(data: Any, header: Any, order: Any, quant: Any) -> bool:
    """Fill quant (int16[3, 64]) in the blocks' order."""
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
def _huffman(data: Any, header: Any, look: Any, codes: Any) -> bool:
    """Make the tables that the scan uses."""
    made = 0
    for c in range(header[hd.COMPONENTS]):
        for field in (hd.DC_TABLE, hd.AC_TABLE):
            table = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c + field]
            if not made >> table & 1 and not build(data, header[hd.HUFFMAN_AT + table], table, look, codes):
                return False
            made |= 1 << table
    return True


@njit
def _fill_slots(header: Any, layout: Any, mcu_row: int, slots: Any) -> int:
    """Describe the blocks of the MCUs of one row; returns how many an MCU has."""
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
                slot[DC_LOOK], slot[DC_CODES] = dc * LOOK_SIZE, dc * CODES_SIZE
                slot[AC_LOOK], slot[AC_CODES] = ac * LOOK_SIZE, ac * CODES_SIZE
                slot[FIRST], slot[LAST] = 0, 0
                if row[lo.BLOCK_TOP] <= y and y < row[lo.BLOCK_BOTTOM]:
                    slot[FIRST] = -(-(row[lo.BLOCK_LEFT] - x) // h)
                    slot[LAST] = -(-(row[lo.BLOCK_RIGHT] - x) // h)
                slot[PLACE] = row[lo.ORIGIN] + 8 * y * row[lo.STRIDE] + 8 * x
                slot[STEP] = 8 * h
                slot[STRIDE] = row[lo.STRIDE]
    return count


@njit
def _last_row(header: Any, layout: Any) -> tuple[Any, int]:
    """The last MCU row needed, and how many pixel rows each row's blocks leave to the next (for their neighbours)."""
    last, lag = 0, 0
    for c in range(header[hd.COMPONENTS]):
        v = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c + hd.V_SAMP]
        last = max(last, (layout[c, lo.BLOCK_BOTTOM] - 1) // v)
        if layout[c, lo.KIND] in (lo.H1V2, lo.H2V2):
            lag = 1
    return last, lag


@njit(forceinline=True)
def _used(bits: Any, at: Any) -> Any:
    """Bytes of the stream begun, by the window (see entropy.py)."""
    return (i64(at) * 8 - i64(bits) + 7) >> 3


@njit(error_model="numpy")
def decode_scan(
    data: Any, header: Any, layout: Any, top: int, left: int, look: Any, codes: Any, order: Any,
    quant: Any, coefficients: Any, slots: Any, predictions: Any, spare: Any, ends: Any, stream: Any, planes: Any,
    out: Any,
) -> bool:  # fmt: skip
    """Decode the region from (top, left) on that `layout` describes; False: something is not as it should be.

    Args:
        data, header, layout: as for `layout.prepare`, which has said yes to them.
        look, codes: room for the tables.
        order: scratch.block_order().
        quant, coefficients, slots, predictions, spare: working memory.
        ends: int64[restart intervals] or more, working memory.
        stream: uint8[len(data) + SLACK] or more, working memory.
        planes: uint8[what prepare returned] or more, working memory.
        out: uint8[height, width, 1 or 3].
    """
    mcu_columns = -(-header[hd.WIDTH] // (8 * header[hd.H_MAX]))
    mcu_rows = -(-header[hd.HEIGHT] // (8 * header[hd.V_MAX]))
    interval = header[hd.RESTART] if header[hd.RESTART] > 0 else mcu_columns * mcu_rows
    if not unstuff(pointer_to(data), header[hd.SCAN], len(data), pointer_to(stream), ends, header[hd.INTERVALS]):
        return False
    if not _quantisers(data, header, order, quant) or not _huffman(data, header, look, codes):
        return False

    coefficients[:] = 0
    predictions[:] = 0
    source, planes_at, places = pointer_to(stream), pointer_to(planes), pointer_to(order)
    looks, all_codes, factors = pointer_to(look), pointer_to(codes), pointer_to(quant)
    block, prediction = pointer_to(coefficients), pointer_to(predictions)

    last_row, lag = _last_row(header, layout)
    finished, bottom = top, top + out.shape[0]
    done, remaining, end = 0, interval, ends[0]
    buffer, bits, at = refill(source, u64(0), u64(0), u64(0))
    for mcu_row in range(last_row + 1):
        blocks = _fill_slots(header, layout, mcu_row, slots)
        for mcu_column in range(mcu_columns):
            if remaining == 0:
                if _used(bits, at) != end:
                    return False
                buffer, bits, at = refill(source, u64(0), u64(0), u64(end))
                predictions[:] = 0
                done += 1
                remaining, end = interval, ends[done]
            remaining -= 1
            slot = pointer_to(slots)
            for _ in range(blocks):
                owner = slot[OWNER]
                look_at, codes_at = advanced(looks, slot[DC_LOOK]), advanced(all_codes, slot[DC_CODES])
                buffer, bits, at, difference = read_dc(source, buffer, bits, at, look_at, codes_at)
                dc = prediction[owner] + difference
                prediction[owner] = dc
                if dc >= DC_LIMIT or dc <= -DC_LIMIT:
                    return False
                look_at, codes_at = advanced(looks, slot[AC_LOOK]), advanced(all_codes, slot[AC_CODES])
                if slot[FIRST] <= mcu_column and mcu_column < slot[LAST]:
                    block[0] = dc
                    buffer, bits, at, extent = read_ac(source, buffer, bits, at, look_at, codes_at, places, block, True)
                    if extent == BAD:
                        return False
                    target = advanced(planes_at, slot[PLACE] + mcu_column * slot[STEP])
                    quant_at, stride = advanced(factors, 64 * owner), u64(slot[STRIDE])
                    if extent <= LOW:
                        safe = idct_low(block, quant_at, target, stride)
                    else:
                        safe = idct_block(block, quant_at, target, stride)
                    if not safe:
                        return False
                else:
                    buffer, bits, at, extent = read_ac(
                        source, buffer, bits, at, look_at, codes_at, places, block, False
                    )
                    if extent == BAD:
                        return False
                slot = advanced(slot, SLOT_SIZE)
            if i64(at) > end + 8:
                return False
        ready = bottom if mcu_row == last_row else min((mcu_row + 1) * 8 * header[hd.V_MAX] - lag, bottom)
        if ready > finished:
            finish_rows(header, layout, planes_at, finished, ready, top, left, out, pointer_to(spare))
            finished = ready
    used = _used(bits, at)
    return bool(used == end or (used < end and last_row < mcu_rows - 1))
