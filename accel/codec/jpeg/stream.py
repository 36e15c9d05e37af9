"""Entropy-coded data (ITU T.81 B.1.1.5): byte stuffing removed, cut at the restart markers."""

from __future__ import annotations

from typing import Any

from numba import njit

from .memory import advanced, copy_and_find_ff, u64


@njit
def unstuff(data: Any, start: int, size: int, stream: Any, ends: Any, intervals: int) -> bool:
    """Copy the scan at data[start:size] to `stream` without stuffing; ends[i]: where restart interval i ends in it.

    True when there are exactly `intervals` of them, separated by the right markers, and then EOI.
    """
    one, chunk = u64(1), u64(64)
    stop = u64(size)
    at, place = u64(start), u64(0)
    interval = 0
    while at + one < stop:
        if at + chunk <= stop:
            plain = copy_and_find_ff(advanced(data, at), advanced(stream, place))
            if plain == chunk:  # a constant step: the next load need not wait for this one
                at += chunk
                place += chunk
                continue
            at += plain
            place += plain
            if at + one >= stop:
                break
        if data[at] != 0xFF:
            stream[place] = data[at]
            at += one
            place += one
            continue
        following = data[at + one]
        at += u64(2)
        if following == 0:
            stream[place] = 0xFF
            place += one
            continue
        ends[interval] = place
        interval += 1
        if interval == intervals:
            return bool(following == 0xD9)
        if following != 0xD0 + ((interval - 1) & 7):
            return False
    return False
