"""Entropy-coded data: byte stuffing removed, cut at the restart markers (ITU T.81 B.1.1.5), and decoded (F.2.2).

Blocks are decoded from a 64-bit window that stays in registers.  It is the triple (buffer, bits, at): the top `bits`
bits of `buffer` are the stream's next ones, and the byte at `at` follows them.  Between two symbols there are always
enough bits for a look-up; the window is refilled while the look-up's load is in flight, because that load and the shift
after it limit the speed.

Reads are unchecked; the caller leaves slack behind the stream and checks the position after each MCU.  `look` and
`codes` point at one table's rows (see tables.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from accel.system.native.memory import advanced, byte_at, copy_and_find_ff, i64, load_big_endian, u64

from .scratch import LOOK, LOOK_SIZE
from .tables import CODE_PLACE, DC_LOOK, END, UNRESOLVED

BAD = -1  # returned in place of a block's extent
BAD_DIFFERENCE = 1 << 20  # and in place of a DC difference
LOOKS = 4  # resolved look-ups that a refill lasts for, and one more look-up: 5 * LOOK <= 56

_U1, _U3, _U8 = u64(1), u64(3), u64(8)
_BYTE, _FULL, _LEAST = u64(255), u64(63), u64(56)
_SHIFT = u64(63)  # a shift by `taken & _SHIFT` is one instruction: processors ignore the other bits
_INDEX, _DC_INDEX = u64(64 - LOOK), u64(64 - DC_LOOK)
_16, _24, _32, _48, _64 = u64(16), u64(24), u64(32), u64(48), u64(64)


@njit(forceinline=True)
def refill(stream: Any, buffer: Any, bits: Any, at: Any) -> Any:
    """Refill the window to at least 56 bits; bits below `bits` that are already in the buffer stay the same."""
    buffer |= load_big_endian(stream, at) >> bits
    return buffer, bits | _LEAST, at + ((_FULL - bits) >> _U3)


@njit
def _search(buffer: Any, codes: Any) -> Any:
    """(length, symbol) of the code at the top of the buffer; length 17, and a run beyond any block: there is none."""
    window = np.uint32(buffer >> _48)
    length = LOOK + 1 if window >= codes[LOOK] else 1
    while length < 17 and window >= codes[length]:
        length += 1
    if length == 17:
        return 17, 64 << 4
    place = np.uint32(window >> np.uint32(16 - length)) + codes[CODE_PLACE + length]
    return length, i64(codes[np.uint32(place)])


@njit(forceinline=True)
def _magnitude(buffer: Any, length: Any, size: Any) -> Any:
    """The last `size` of the buffer's first `length` bits, as the signed value of T.81 table F.1 (EXTEND)."""
    values = i64(1) << i64(size)
    value = i64(buffer >> (_64 - length)) & (values - 1)
    return value if 2 * value >= values else value - (values - 1)


@njit(forceinline=True)
def read_dc(stream: Any, buffer: Any, bits: Any, at: Any, look: Any, codes: Any) -> Any:
    """Read a DC difference: (buffer, bits, at, difference), BAD_DIFFERENCE if it is not valid."""
    entry = look[buffer >> _DC_INDEX]
    buffer, bits, at = refill(stream, buffer, bits, at)
    length, size = entry & _BYTE, entry >> _16
    if length == 0:
        code_length, symbol = _search(buffer, codes)
        if code_length == 17:
            return buffer, bits, at, BAD_DIFFERENCE
        size = u64(symbol)
        length = u64(code_length) + size
    return buffer << length, bits - length, at, _magnitude(buffer, length, size)


@njit(forceinline=True)
def _unresolved(entry: Any, following: Any, buffer: Any, codes: Any) -> Any:
    """A code whose magnitude the look-up did not resolve: (bits of both, run, size, whether it ends the block)."""
    length, run, size = entry & _BYTE, (entry >> _U8) & _BYTE, (entry >> _16) & _BYTE
    if length == 0 or following < UNRESOLVED:
        code_length, symbol = _search(buffer, codes)
        run, size = u64(symbol >> 4), u64(symbol & 15)
        return u64(code_length) + size, run, size, symbol == 0
    return length, run, size, False


@njit(forceinline=True)
def read_ac(
    stream: Any, buffer: Any, bits: Any, at: Any, look: Any, codes: Any, order: Any, block: Any, keep: bool
) -> Any:
    """Read a block's AC coefficients: (buffer, bits, at, extent); from `extent` on, in zigzag order, they are zero.

    An extent of BAD: not a valid block.

    With `keep`, coefficient k goes to block[order[k]]; order[64:] points at the dump.
    """
    lengths = advanced(look, LOOK_SIZE)
    k = _U1
    while k < _64:
        index = buffer >> _INDEX
        buffer, bits, at = refill(stream, buffer, bits, at)
        for _ in range(LOOKS):
            entry, taken = look[index], byte_at(lengths, index)
            following = k + ((entry >> _24) & _BYTE)
            if keep:
                # a missing second or unresolved coefficient stores a zero in a place that is still empty
                block[order[k + ((entry >> _U8) & _BYTE)]] = np.int16(entry >> _32)
                block[order[k + ((entry >> _16) & _BYTE)]] = np.int16(entry >> _48)
            if following > 63:
                break
            k = following
            buffer <<= taken & _SHIFT
            bits -= taken
            index = buffer >> _INDEX
        if following < 64:
            continue
        if following == 64 or END <= following < END + 64:
            length = entry & _BYTE
            return buffer << length, bits - length, at, i64(following & u64(END - 1))
        buffer, bits, at = refill(stream, buffer, bits, at)
        length, run, size, ends = _unresolved(entry, following, buffer, codes)
        if ends:
            return buffer << length, bits - length, at, i64(k)
        following = k + run + _U1
        if following > 64:
            return buffer, bits, at, BAD
        if keep:
            block[order[k + run]] = _magnitude(buffer, length, size)
        buffer <<= length
        bits -= length
        k = following
    return buffer, bits, at, 64


@njit
def _is_marker_behind(code: Any, count: Any, intervals: Any) -> Any:
    """Whether this marker belongs behind the first `count` restart intervals."""
    return code == 0xD9 if count == intervals else code == 0xD0 + ((count - 1) & 7)


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
        if not _is_marker_behind(following, first + interval, intervals):
            return 0
        if first + interval == intervals:
            stuffed[count] = 0xFFFFFFFF
            return interval
    stuffed[count] = 0xFFFFFFFF
    ends[interval] = place
    return interval + 1 if stop < size else 0
