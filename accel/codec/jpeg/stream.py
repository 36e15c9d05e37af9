"""Entropy-coded data (ITU T.81 B.1.1.5): byte stuffing removed, cut at the restart markers."""

from __future__ import annotations

from typing import Any

from numba import njit

from accel.system.native.memory import advanced, copy_and_find_ff, u64


@njit
def unstuff(
    data: Any, start: int, stop: int, size: int, stream: Any, ends: Any, stuffed: Any, first: int, intervals: int
) -> int:
    """Copy a piece of the scan, data[start:stop], to `stream` without stuffing; the file ends at `size`.

    ends[i]: where the i-th restart interval of the piece ends in the stream; stuffed[i]: the place in the stream of the
    i-th 0xFF with a stuffed zero, and after the last one a place beyond all.  The piece begins in interval `first`.
    The bytes behind it in the stream are undefined.

    Returns the number of intervals that the piece has a part of; 0 if a marker in it is not the right one (EOI behind
    the last interval), or if the file ends without one.
    """
    one, chunk = u64(1), u64(64)
    last, beyond = u64(size), u64(stop)
    at, place = u64(start), u64(0)
    interval, count = 0, 0
    while at < beyond and at + one < last:
        if at + chunk <= last:
            plain = copy_and_find_ff(advanced(data, at), advanced(stream, place))
            if plain == chunk:  # a constant step: the next load need not wait for this one
                at += chunk
                place += chunk
                continue
            at += plain
            place += plain
            if at >= beyond or at + one >= last:
                break
        if data[at] != 0xFF:
            stream[place] = data[at]
            at += one
            place += one
            continue
        following = data[at + one]
        at += u64(2)
        if following == 0:
            stuffed[count] = place
            count += 1
            stream[place] = 0xFF
            place += one
            continue
        ends[interval] = place
        interval += 1
        if first + interval == intervals:
            stuffed[count] = 0xFFFFFFFF
            return interval if following == 0xD9 else 0
        if following != 0xD0 + ((first + interval - 1) & 7):
            return 0
    stuffed[count] = 0xFFFFFFFF
    ends[interval] = place
    return interval + 1 if stop < size else 0
