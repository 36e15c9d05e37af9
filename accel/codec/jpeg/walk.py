"""Walking MCUs: skipping them, or decoding those of their blocks that are needed.

Both begin and end with the window of entropy.py, and return whether the stream was valid.  Their `tools` are pointers
to: the stream; the rows of `look` and of `codes`; the quantisers; the block order; two blocks of zeros; the
predictions; the planes; the trail; and the inverse DCT's tables.  To the trail they write, before the MCU `until` and
those that follow it by `gaps`, the bit of the stream and the predictions, TRAIL numbers each.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from accel.system.native.memory import advanced, i64, own_registers, u64

from .blocks import AC_CODES, AC_LOOK, DC_CODES, DC_LOOK, FIRST, LAST, OWNER, PLACE, STEP, STRIDE
from .entropy import BAD, read_ac, read_dc
from .idct import LOW, idct_block, idct_flat, idct_low
from .scratch import BLOCK_SIZE, SLOT_SIZE, TRAIL

DC_LIMIT = 1 << 15


@njit(forceinline=True)
def _leave(trail: Any, bits: Any, at: Any, prediction: Any) -> Any:
    trail[0] = i64(at) * 8 - i64(bits)
    for c in range(3):
        trail[1 + c] = prediction[c]
    return advanced(trail, TRAIL)


@njit(forceinline=True)
def _transform(block: Any, extent: Any, quant: Any, tables: Any, target: Any, stride: Any) -> Any:
    if extent == 1:
        return idct_flat(block, quant, target, stride)
    if extent <= LOW:
        return idct_low(block, quant, tables, target, stride)
    return idct_block(block, quant, tables, target, stride)


def _made(kept: bool) -> Any:
    """Make the walk; `kept`: needed blocks are decoded to the planes."""

    @njit
    def walk(
        tools: Any, buffer: Any, bits: Any, at: Any, end: Any, slots: Any, blocks: Any, column: Any, stop: Any,
        until: Any, gaps: Any,
    ) -> Any:  # fmt: skip
        """Walk the MCUs `column` to before `stop` of an interval that ends at `end`: (buffer, bits, at, good)."""
        own_registers()
        source, looks, all_codes, factors, places, block, prediction, planes, trail, tables = tools
        other = advanced(block, BLOCK_SIZE)
        # The last block read: it is transformed after the next one has begun, when its stores have completed.
        extent, quant_at, target, stride = i64(0), factors, planes, u64(0)
        for mcu_column in range(column, stop):
            if mcu_column == until:
                trail = _leave(trail, bits, at, prediction)
                until += gaps[0]
                gaps = advanced(gaps, 1)
            slot = slots
            for _ in range(blocks):
                owner = slot[OWNER]
                look_at, codes_at = advanced(looks, slot[DC_LOOK]), advanced(all_codes, slot[DC_CODES])
                buffer, bits, at, difference = read_dc(source, buffer, bits, at, look_at, codes_at)
                dc = prediction[owner] + difference
                prediction[owner] = dc
                if dc >= DC_LIMIT or dc <= -DC_LIMIT:
                    return buffer, bits, at, False
                look_at, codes_at = advanced(looks, slot[AC_LOOK]), advanced(all_codes, slot[AC_CODES])
                if kept and slot[FIRST] <= mcu_column and mcu_column < slot[LAST]:
                    block[0] = dc
                    if extent != 0 and not _transform(other, extent, quant_at, tables, target, stride):
                        return buffer, bits, at, False
                    buffer, bits, at, following = read_ac(
                        source, buffer, bits, at, look_at, codes_at, places, block, True
                    )
                    extent = following
                    block, other = other, block
                    target = advanced(planes, slot[PLACE] + mcu_column * slot[STEP])
                    quant_at, stride = advanced(factors, 64 * owner), u64(slot[STRIDE])
                else:
                    buffer, bits, at, following = read_ac(
                        source, buffer, bits, at, look_at, codes_at, places, block, False
                    )
                if following == BAD:
                    return buffer, bits, at, False
                slot = advanced(slot, SLOT_SIZE)
            if i64(at) > end + 8:
                return buffer, bits, at, False
        if kept and extent != 0 and not _transform(other, extent, quant_at, tables, target, stride):
            return buffer, bits, at, False
        return buffer, bits, at, True

    return walk


skip, keep = _made(kept=False), _made(kept=True)
