"""A thread's share of a batch in one call: for each image a reader, called by its address, then the pass."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils

from accel.backends.cpu import pass_fields as ps
from accel.backends.cpu.pass_windows import show_window
from accel.backends.shared.numba_memory import pointer
from accel.planning.column_fields import AXIS, BEGIN, LENGTH, SHOWN, SIZE, START, STEP, WINDOW, WINDOW_STEP
from accel.system.native.call_fields import FIRST, HEAD
from accel.system.native.call_kernels import address, caller, float_bits, show, word_at
from accel.system.native.intrinsics import emitted
from accel.system.native.memory import advanced, byte_at, i64, pointer_to, take_numbers, u64

from . import share_fields as sh

BEGUN, ENDED = 0, 1
"""Moments of an image's reading, for ``note_time``."""

_read = caller(sh.READER)
_pass = caller(ps.SIGNATURE)
_take_rows = caller(ps.TAKE_ROWS)


@njit
def run_share(counter: Any, share: Any, reader: Any) -> None:
    """Process images one after the other, shared with other threads, until none is left; see ``shares``.

    Images that the reader or the pass declines are listed in LEFT; their output may be overwritten. If more working
    memory is needed, the block says so, and the function returns to be called again.

    Args:
        counter: int64 [1], the next image of all threads.
        share: the block. reader: the words of a call of a reader with this block.
    """
    while True:
        number = share[sh.CURRENT]
        if number < 0:
            number = take_numbers(pointer_to(counter), 1)
            share[sh.IS_READ] = 0
        share[sh.CURRENT] = -1
        if number >= share[sh.COUNT]:
            return
        position = row(share, sh.POSITIONS)[number]
        state = _image(number, position, share, reader)
        if state == sh.TOO_SMALL:
            share[sh.CURRENT] = number
            return
        if state == sh.DONE:
            share[sh.COUNT_DONE] += 1
        else:
            row(share, sh.LEFT)[share[sh.COUNT_LEFT]] = position
            share[sh.COUNT_LEFT] += 1


@njit
def _image(number: Any, position: Any, share: Any, reader: Any) -> Any:
    """Read an image's region, unless only the pass had lacked memory for it, and run its pass; return the state."""
    if share[sh.IS_READ] == 0:
        share[sh.PART], share[sh.SPENT] = ps.ALL, 0
        note_time(share, number, BEGUN)
        reader[FIRST] = number
        state = _read(pointer_to(reader))
        if state != sh.DONE:
            return state
        note_time(share, number, ENDED)
        share[sh.IS_READ] = 1
        if share[sh.PART] == ps.ALL:
            show_pass(share, position)
    return call_pass(share, share[sh.PART])


# -- blocks ---------------------------------------------------------------------------------------------------


@emitted(types.CPointer(types.int64), types.int64)
def _numbers_at(builder: ir.IRBuilder, address: Any) -> Any:
    return builder.inttoptr(address, ir.IntType(64).as_pointer())


@njit
def address_of(block: Any, field: int) -> Any:
    """The address of the first item of an array in a block."""
    return word_at(block[field] + HEAD)


@njit
def length_of(block: Any, field: int) -> Any:
    """The length of the first axis of an array in a block."""
    return word_at(word_at(block[field] + HEAD + 16))


@njit
def row(block: Any, field: int, number: Any = 0, width: int = 0) -> Any:
    """A pointer to the int64 in a row of ``width`` of an array in a block; without a number, to the first one."""
    return _numbers_at(address_of(block, field) + 8 * width * number)


@njit
def too_small(share: Any, memory: int, size: Any) -> Any:
    """Ask for ``size`` items of a kind of working memory, and return the image's state."""
    share[sh.MEMORY], share[sh.ROOM] = memory, size
    return sh.TOO_SMALL


# -- clocks ---------------------------------------------------------------------------------------------------


@emitted(types.void, types.int64, None)
def _write_time(builder: ir.IRBuilder, clock: Any, where: Any) -> None:
    """Write the time of a libc clock: seconds and nanoseconds."""
    kind = ir.FunctionType(ir.IntType(32), [ir.IntType(32), where.type])
    look = cgutils.get_or_insert_function(builder.module, kind, "clock_gettime")
    builder.call(look, [builder.trunc(clock, ir.IntType(32)), where])


@njit
def _now(share: Any) -> Any:
    _write_time(share[sh.CLOCK], advanced(pointer_to(share), i64(sh.NOW)))
    return share[sh.NOW] * 1_000_000_000 + share[sh.NOW + 1]


@njit
def note_time(share: Any, number: Any, moment: int) -> None:
    """Write the time at which reading a region begins or ends, less the time spent in the pass, if a clock is read."""
    if share[sh.CLOCK] >= 0:
        time, place = _now(share) - share[sh.SPENT], row(share, sh.TIMES, 2 * number + moment, 2)
        place[0], place[1] = time // 1_000_000_000, time % 1_000_000_000


# -- the pass -------------------------------------------------------------------------------------------------


@njit
def show_pass(share: Any, position: Any) -> None:
    """Set the arguments of an image's pass, which reads the region in PIXELS and writes its part of TARGET."""
    fused, box, part = row(share, sh.PASS_CALL), row(share, sh.BOXES, position, 4), row(share, sh.PARTS, position, 3)
    channels, rows, columns = share[sh.CHANNELS], part[SHOWN], part[SHOWN + 1]
    show(fused, 0, address_of(share, sh.PIXELS), box[2], box[3], channels)
    fused[FIRST + ps.ROWS_FIRST] = i64(byte_at(row(share, sh.ROWS_FIRST), u64(position)))
    for axis in range(2):
        _show_axis(share, fused, axis, position, part[SHOWN + axis])
    place = address_of(share, sh.TARGET) + part[BEGIN] * share[sh.ITEM]
    if share[sh.PLANAR] != 0:
        show(fused, ps.OUT, place, channels, rows, columns)
    else:
        show(fused, ps.OUT, place, rows, columns, channels)


@njit
def _show_axis(share: Any, fused: Any, axis: int, position: Any, shown: Any) -> None:
    """Set the parameters of one axis of an image, of which ``shown`` positions are shown."""
    numbers = row(share, sh.AXES, axis * share[sh.IMAGES] + position, AXIS)
    place = ps.AXES + ps.AXIS * axis
    fused[FIRST + place], fused[FIRST + place + 1] = numbers[START], numbers[STEP]
    fused[FIRST + place + 2] = numbers[LENGTH]
    fused[FIRST + place + 3] = 0
    fused[FIRST + place + 4] = float_bits(np.float64(numbers[LENGTH]))
    fused[FIRST + place + 5] = numbers[SIZE]
    window = address_of(share, sh.WINDOWS) + 4 * axis * (length_of(share, sh.WINDOWS) // 2)
    show_window(carray(pointer(window), (shown,), np.int32), numbers[SIZE], numbers[WINDOW], numbers[WINDOW_STEP])
    show(fused, place + 6, window, shown)


@njit
def call_pass(share: Any, part: int) -> Any:
    """Run a pass whose arguments are set, or a part of it (``pass_fields``); return the image's state."""
    fused = row(share, sh.PASS_CALL)
    fused[FIRST + ps.PART] = part
    state = _pass(fused)
    if state > 0:
        return too_small(share, sh.PASS, state)
    return sh.DONE if state == 0 else sh.OTHERWISE


@njit
def begin_bands(share: Any) -> Any:
    """Begin a pass whose arguments are set, which takes the region in bands (``take_band``); return the state."""
    state = call_pass(share, ps.BEGIN)
    row(share, sh.TAKE_ROWS)[FIRST + 1] = address(row(share, sh.PASS_CALL), ps.SCRATCH)
    share[sh.PART] = ps.END
    return state


@njit
def take_band(begin: int, count: int, share: Any) -> Any:
    """Hand a band to the pass, and add up the time that it takes: a decoder's sink (``decode_fields.TAKE_BAND``)."""
    if share[sh.CLOCK] >= 0:
        share[sh.SPENT] -= _now(share)
    take_rows = row(share, sh.TAKE_ROWS)
    take_rows[FIRST] = begin
    result = _take_rows(take_rows)
    if share[sh.CLOCK] >= 0:
        share[sh.SPENT] += _now(share)
    return result
