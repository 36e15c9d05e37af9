"""A thread's share of a batch of cached results in one call: reading and checking pixels, then the pass."""

from __future__ import annotations

from typing import Any

from numba import njit

from accel.cache import reading_fields as rd
from accel.codec.jpeg.memory import pointer_to
from accel.native.call_kernels import caller, show

from . import share_fields as sh
from .share_steps import OTHERWISE, passed, settled, taken

_read = caller(rd.SIGNATURE)


@njit
def run_result_share(
    counter: Any, asked: Any, numbers: Any, begins: Any, sizes: Any, axes: Any, rows_first: Any,
    left: Any, said: Any, read: Any, fused: Any, windows: Any, pixels: Any, out: Any, parts: Any, item: int,
    channels: int, planar: bool,
) -> Any:  # fmt: skip
    """Process results one after the other, shared with other threads, until none is left; see ``result_shares``.

    Damaged results are listed in ``left``. If more working memory is needed, it says so in ``said`` and returns, to be
    called again.
    """
    while True:
        number = taken(counter, said)
        if number >= len(asked):
            said[sh.CURRENT] = -1
            return
        show(read, rd.WANTED, asked.ctypes.data + 8 * rd.ROW * number, 1, rd.ROW)
        show(read, rd.NUMBERS, numbers.ctypes.data + 4 * begins[number], 3 * asked[number, rd.COUNT])
        state = OTHERWISE
        if _read(pointer_to(read)) == 1:
            state = passed(
                number, sizes[number, 0], sizes[number, 1], axes, rows_first, said, fused, windows, pixels, out, parts,
                item, channels, planar,
            )  # fmt: skip
        if not settled(state, number, number, left, said):
            return
