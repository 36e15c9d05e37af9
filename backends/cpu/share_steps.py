"""The steps common to all shares of a batch, wherever pixels come from: an image's pass, and settling its state."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils

from accel.backends.cpu import pass_fields as ps
from accel.backends.cpu.pass_windows import show_window
from accel.codec.jpeg.memory import advanced, i64, pointer_to, take_numbers
from accel.native.call_fields import FIRST
from accel.native.call_kernels import caller, float_bits, show
from accel.native.intrinsics import emitted
from accel.planning.column_fields import BEGIN, LENGTH, SHOWN, SIZE, START, STEP, WINDOW, WINDOW_STEP

from . import share_fields as sh

DONE, OTHERWISE, ROOM = 0, 1, 2
"""States of an image: done, left to Python, or to be tried again with more working memory."""

BEGUN, ENDED = 0, 1
"""Moments of an image's decoding, for ``note_time``."""

_pass = caller(ps.SIGNATURE)


@emitted(types.void, types.int64, None)
def write_time(builder: ir.IRBuilder, clock: Any, where: Any) -> None:
    """Write the time of a libc clock: seconds and nanoseconds."""
    kind = ir.FunctionType(ir.IntType(32), [ir.IntType(32), where.type])
    look = cgutils.get_or_insert_function(builder.module, kind, "clock_gettime")
    builder.call(look, [builder.trunc(clock, ir.IntType(32)), where])


@njit
def note_time(times: Any, clock: int, number: Any, moment: int) -> None:
    """Write the time at which decoding an image begins or ends, unless ``times`` is empty."""
    if len(times) != 0:
        write_time(clock, advanced(pointer_to(times), i64(4) * number + 2 * moment))


@njit
def taken(counter: Any, said: Any) -> Any:
    """Take the next image: the one that needed more working memory, else one that no other thread takes."""
    number = said[sh.CURRENT]
    if number < 0:
        number = take_numbers(pointer_to(counter), 1)
    return number


@njit
def settled(state: Any, number: Any, position: Any, left: Any, said: Any) -> Any:
    """Record an image's state; False if it needs more working memory."""
    said[sh.CURRENT] = number if state == ROOM else -1
    said[sh.DONE] += state == DONE
    if state == OTHERWISE:
        left[said[sh.LEFT]] = position
        said[sh.LEFT] += 1
    return state != ROOM


@njit
def show_pass(
    position: Any, height: Any, width: Any, axes: Any, rows_first: Any, fused: Any, windows: Any, pixels: Any, out: Any,
    parts: Any, item: int, channels: int, planar: bool,
) -> None:  # fmt: skip
    """Set the arguments of an image's pass, which reads the region in ``pixels`` and writes its part of ``out``."""
    show(fused, 0, pixels.ctypes.data, height, width, channels)
    fused[FIRST + ps.ROWS_FIRST] = rows_first[position]
    for axis in range(2):
        _axis(fused, ps.AXES + ps.AXIS * axis, axes, axis, position, windows[axis], parts[position, SHOWN + axis])
    begin, rows, columns = parts[position, BEGIN], parts[position, SHOWN], parts[position, SHOWN + 1]
    place = out.ctypes.data + begin * item
    if planar:
        show(fused, ps.OUT, place, channels, rows, columns)
    else:
        show(fused, ps.OUT, place, rows, columns, channels)


@njit
def call_pass(fused: Any, part: int, said: Any) -> Any:
    """Run a pass whose arguments are set, or a part of it (``pass_fields``); return the image's state."""
    fused[FIRST + ps.PART] = part
    state = _pass(pointer_to(fused))
    if state > 0:
        return wants(said, sh.PASS, state)
    return DONE if state == 0 else OTHERWISE


@njit
def passed(
    position: Any, height: Any, width: Any, axes: Any, rows_first: Any, said: Any, fused: Any, windows: Any,
    pixels: Any, out: Any, parts: Any, item: int, channels: int, planar: bool,
) -> Any:  # fmt: skip
    """Run the pass of an image whose region is in ``pixels``, into its part of ``out``; return its state."""
    show_pass(
        position, height, width, axes, rows_first, fused, windows, pixels, out, parts, item, channels, planar
    )  # fmt: skip
    return call_pass(fused, ps.ALL, said)


@njit
def wants(said: Any, what: int, size: Any) -> Any:
    said[sh.WANTED], said[sh.ROOM] = what, size
    return ROOM


@njit
def _axis(fused: Any, place: int, axes: Any, axis: int, position: Any, window: Any, shown: int) -> None:
    """Set the parameters of one axis of an image, from ``place`` on."""
    fused[FIRST + place], fused[FIRST + place + 1] = axes[axis, position, START], axes[axis, position, STEP]
    size, begin, step = axes[axis, position, SIZE], axes[axis, position, WINDOW], axes[axis, position, WINDOW_STEP]
    fused[FIRST + place + 2] = axes[axis, position, LENGTH]
    fused[FIRST + place + 3] = 0
    fused[FIRST + place + 4] = float_bits(np.float64(axes[axis, position, LENGTH]))
    fused[FIRST + place + 5] = size
    show_window(window[:shown], size, begin, step)
    show(fused, place + 6, window.ctypes.data, shown)
