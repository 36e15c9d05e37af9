"""A thread's share of a batch of half-decoded pictures in one call: reading and checking parts, then the pass."""

from __future__ import annotations

from typing import Any

from numba import njit

from accel.cache import reading_fields as rd
from accel.codec.jpeg import planes_fields as pf
from accel.codec.jpeg.memory import i64, pointer_to
from accel.native.call_fields import FIRST
from accel.native.call_kernels import caller, length, show

from . import share_fields as sh
from .share_steps import BEGUN, ENDED, OTHERWISE, note_time, passed, settled, taken, wants

_needed = caller(pf.NEEDED)
_read = caller(rd.SIGNATURE)
_unpack = caller(pf.UNPACK)


@njit
def run_plane_share(
    counter: Any, positions: Any, descriptions: Any, asked: Any, numbers: Any, begins: Any, boxes: Any, axes: Any,
    rows_first: Any, left: Any, said: Any, needed: Any, read: Any, unpack: Any, fused: Any, span: Any, windows: Any,
    pixels: Any, out: Any, parts: Any, times: Any, clock: int, item: int, channels: int, planar: bool,
) -> Any:  # fmt: skip
    """Process pictures one after the other, shared with other threads, until none is left; see ``plane_shares``.

    Damaged pictures are listed in ``left``. If more working memory is needed, it says so in ``said`` and returns, to
    be called again. ``times``, unless empty, gets the times at which the decoding of each began and ended.
    """
    while True:
        number = taken(counter, said)
        if number >= len(positions):
            said[sh.CURRENT] = -1
            return
        state = _picture(
            number, positions[number], descriptions, asked, numbers, begins, boxes, axes, rows_first, said, needed,
            read, unpack, fused, span, windows, pixels, out, parts, times, clock, item, channels, planar,
        )  # fmt: skip
        if not settled(state, number, positions[number], left, said):
            return


@njit
def _picture(
    number: Any, position: Any, descriptions: Any, asked: Any, numbers: Any, begins: Any, boxes: Any, axes: Any,
    rows_first: Any, said: Any, needed: Any, read: Any, unpack: Any, fused: Any, span: Any, windows: Any,
    pixels: Any, out: Any, parts: Any, times: Any, clock: int, item: int, channels: int, planar: bool,
) -> Any:  # fmt: skip
    note_time(times, clock, number, BEGUN)
    top, left, height, width = boxes[position, 0], boxes[position, 1], boxes[position, 2], boxes[position, 3]
    described = descriptions.ctypes.data + 2 * pf.META_SIZE * number
    show(needed, 0, described, pf.META_SIZE)
    for i in range(4):
        needed[FIRST + pf.BOX + i] = boxes[position, i]
    size = _needed(pointer_to(needed))
    if size <= 0 or channels < descriptions[number, pf.COMPONENTS]:
        return OTHERWISE
    if size > length(unpack, pf.PLANES):
        return wants(said, sh.PLANES, size)
    asked[number, rd.BEGIN], asked[number, rd.END] = span[0], span[1]
    show(read, rd.WANTED, asked.ctypes.data + 8 * rd.ROW * number, 1, rd.ROW)
    show(read, rd.NUMBERS, numbers.ctypes.data + 4 * begins[number], 3 * asked[number, rd.COUNT])
    if _read(pointer_to(read)) != 1:
        return OTHERWISE
    show(unpack, 0, described, pf.META_SIZE)
    unpack[FIRST + pf.FROM], unpack[FIRST + pf.FROM + 1], unpack[FIRST + pf.FROM + 2] = i64(span[0]), top, left
    show(unpack, pf.OUT, pixels.ctypes.data, height, width, channels)
    unpacked = _unpack(pointer_to(unpack))
    note_time(times, clock, number, ENDED)
    if unpacked <= 0:
        return OTHERWISE
    return passed(
        position, height, width, axes, rows_first, said, fused, windows, pixels, out, parts, item, channels, planar
    )
