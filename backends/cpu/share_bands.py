"""Regions that the pass takes in bands while they are decoded, so that they are never in memory as a whole."""

from __future__ import annotations

from typing import Any

from numba import njit

from accel.backends.cpu import pass_fields as ps
from accel.codec.jpeg import decode_fields as df
from accel.codec.jpeg.memory import advanced, i64, pointer_to
from accel.native.call_fields import FIRST
from accel.native.call_kernels import address, caller, show
from accel.planning.column_fields import LENGTH, SIZE

from . import share_fields as sh
from .share_steps import ENDED, call_pass, write_time

_take_rows = caller(ps.TAKE_ROWS)


@njit
def choose_bands(boxes: Any, axes: Any, rows_first: Any, channels: int, most: int, bands: Any) -> None:
    """Fill ``bands`` (uint8 [images]): 1 for a region of more than ``most`` bytes that the pass can take in bands."""
    for image in range(len(boxes)):
        height, width = boxes[image, 2], boxes[image, 3] * channels
        large = height * width > most and min(height, width) >= ps.LEAST
        resampled = axes[1, image, LENGTH] != axes[1, image, SIZE]
        bands[image] = large and resampled and rows_first[image] == 0


@njit
def take_band(begin: int, count: int, own: Any) -> Any:
    """Hand a band to the pass, and add up the time that it takes: a decoder's sink (``decode_fields.TAKE_BAND``)."""
    if own[sh.CLOCK] >= 0:
        own[sh.SPENT] -= _now(own)
    own[sh.CALL + FIRST] = begin
    result = _take_rows(advanced(pointer_to(own), i64(sh.CALL)))
    if own[sh.CLOCK] >= 0:
        own[sh.SPENT] += _now(own)
    return result


@njit
def _now(own: Any) -> Any:
    write_time(own[sh.CLOCK], advanced(pointer_to(own), i64(sh.NOW)))
    return own[sh.NOW] * 1_000_000_000 + own[sh.NOW + 1]


@njit
def begin_bands(fused: Any, own: Any, clock: int, times: Any, said: Any) -> Any:
    """Begin a pass whose arguments are set, and prepare the sink's words; return the state (``share_steps``)."""
    state = call_pass(fused, ps.BEGIN, said)
    own[sh.CALL + FIRST + 1] = address(fused, ps.SCRATCH)
    own[sh.CLOCK], own[sh.SPENT] = clock if len(times) != 0 else -1, 0
    return state


@njit
def show_bands(decode: Any, sink: Any, pixels: Any, width: Any, channels: int) -> None:
    """Have the decoder write bands to ``pixels``, and the sink take them."""
    show(decode, df.SINK, sink.ctypes.data, len(sink))
    show(decode, df.OUT, pixels.ctypes.data, ps.BAND, width, channels)


@njit
def leave_out(own: Any, times: Any, number: Any) -> None:
    """Subtract the time spent in the sink from an image's decoding time, unless ``times`` is empty."""
    if len(times) != 0:
        ended = times[number, ENDED, 0] * 1_000_000_000 + times[number, ENDED, 1] - own[sh.SPENT]
        times[number, ENDED, 0], times[number, ENDED, 1] = ended // 1_000_000_000, ended % 1_000_000_000
