"""A thread's share of a batch of files in one call: looking up the index, decoding the region, then the pass."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from accel.backends.cpu import pass_fields as ps
from accel.codec import store_fields as st
from accel.codec import store_kernels
from accel.codec.jpeg import decode_fields as df
from accel.codec.jpeg import header_fields as hd
from accel.codec.jpeg.memory import i64, pointer_to
from accel.files import fields as of
from accel.native.call_fields import FIRST
from accel.native.call_kernels import caller, length, show

from . import share_fields as sh
from .share_bands import begin_bands, leave_out, show_bands
from .share_steps import (
    BEGUN,
    DONE,
    ENDED,
    OTHERWISE,
    call_pass,
    note_time,
    passed,
    settled,
    show_pass,
    taken,
    wants,
)

_prepare = caller(df.PREPARE)
_decode = caller(df.DECODE)


@njit
def list_files(
    known: Any, plain: Any, places: Any, content: Any, boxes: Any, bands: Any, channels: int, limit: int, images: Any,
    keys: Any, asked: Any, said: Any,
) -> Any:  # fmt: skip
    """List the files of a batch that are the plain case, and return their number; see ``shares``.

    Args:
        known, places, content, asked: of ``Files``.
        plain: the result of ``read.which_only_decode``. If it is empty, the plain case is a file whose state is PLAIN
            and that was not decoded before.
        bands: uint8 [files], whether the region is decoded in bands.
        limit: the most bytes of pixels in memory, of a region or of a band.
        images, keys: are filled. said: see ``share_fields``.
    """
    listed, said[sh.LARGEST], said[sh.REGION] = 0, 0, 0
    for position in range(len(known)):
        size = boxes[position, 3] * channels
        size = size * ps.BAND + ps.BEHIND if bands[position] else size * boxes[position, 2]
        if len(plain) > 0:
            wanted = plain[position] != 0
        else:
            wanted = known[position, of.STATE] == of.PLAIN and asked[position] == 0
        if not wanted or size > limit:
            continue
        image = images[listed]
        image[sh.POSITION], image[sh.BYTES] = position, places[position, 1]
        image[sh.DATA] = content.ctypes.data + places[position, 0]
        image[sh.HAS_KEY] = known[position, of.WRITTEN] >= 0
        for i in range(st.KEY):
            keys[listed, i] = np.uint64(known[position, of.DEVICE + i])
        said[sh.LARGEST] = max(said[sh.LARGEST], places[position, 1])
        said[sh.REGION] = max(said[sh.REGION], size)
        asked[position] = 1
        listed += 1
    return listed


@njit
def run_share(
    counter: Any, images: Any, keys: Any, boxes: Any, bands: Any, axes: Any, rows_first: Any, left: Any, said: Any,
    prepare: Any, decode: Any, sink: Any, of_sink: Any, fused: Any, header: Any, words: Any, levels: Any, places: Any,
    own: Any, index: Any, windows: Any, pixels: Any, out: Any, parts: Any, times: Any, clock: int, item: int,
    channels: int, planar: bool,
) -> Any:  # fmt: skip
    """Process images one after the other, shared with other threads, until none is left; see ``shares``.

    Images that are not the plain case are listed in ``left``; their output may be overwritten. If more working memory
    is needed, it says so in ``said`` and returns, to be called again. ``times``, unless empty, gets the times at which
    the decoding of each image began and ended.
    """
    while True:
        number = taken(counter, said)
        if number >= len(images):
            said[sh.CURRENT] = -1
            return
        state = _image(
            number, images, keys, boxes, bands, axes, rows_first, said, prepare, decode, sink, of_sink, fused, header,
            words, levels, places, own, index, windows, pixels, out, parts, times, clock, item, channels, planar,
        )  # fmt: skip
        if not settled(state, number, images[number, sh.POSITION], left, said):
            return


@njit
def _image(
    number: Any, images: Any, keys: Any, boxes: Any, bands: Any, axes: Any, rows_first: Any, said: Any,
    prepare: Any, decode: Any, sink: Any, of_sink: Any, fused: Any, header: Any, words: Any, levels: Any, places: Any,
    own: Any, index: Any, windows: Any, pixels: Any, out: Any, parts: Any, times: Any, clock: int, item: int,
    channels: int, planar: bool,
) -> Any:  # fmt: skip
    position, data, count = images[number, sh.POSITION], images[number, sh.DATA], images[number, sh.BYTES]
    top, left, height, width = boxes[position, 0], boxes[position, 1], boxes[position, 2], boxes[position, 3]
    if bands[position]:
        show_pass(
            position, height, width, axes, rows_first, fused, windows, pixels, out, parts, item, channels, planar
        )  # fmt: skip
        state = begin_bands(fused, of_sink, clock, times, said)
        if state != DONE:
            return state
    note_time(times, clock, number, BEGUN)
    show(prepare, 0, data, count)
    for i in range(4):
        prepare[FIRST + 4 + i] = boxes[position, i]
    needed = _prepare(pointer_to(prepare))
    if needed <= 0 or channels < header[hd.COMPONENTS]:
        return OTHERWISE
    if header[hd.INTERVALS] > length(decode, df.ENDS):
        return wants(said, sh.ENDS, header[hd.INTERVALS])
    if needed > length(decode, df.PLANES):
        return wants(said, sh.PLANES, needed)
    size = i64(0)
    if images[number, sh.HAS_KEY] != 0 and len(levels) > 0:
        size = header[hd.INDEX_BYTES] >> 3
    if size > len(index):
        return wants(said, sh.INDEX, size)
    if size > 0:
        found = store_kernels.get(words, levels, places, keys, number, index[:size])
        if found == 0:
            index[0] = 0  # no points are known
            size *= said[sh.FULL] == 0
        elif found != size:
            return OTHERWISE
    show(decode, 0, data, count)
    decode[FIRST + 3], decode[FIRST + 4] = top, left
    show(decode, df.INDEX, index.ctypes.data, size << 2)
    decode[FIRST + df.HEIGHT] = height
    if bands[position]:
        show_bands(decode, sink, pixels, width, channels)
    else:
        show(decode, df.SINK, sink.ctypes.data, 0)
        show(decode, df.OUT, pixels.ctypes.data, height, width, channels)
    done = _decode(pointer_to(decode))
    note_time(times, clock, number, ENDED)
    if done <= 0:
        return OTHERWISE
    if bands[position]:
        leave_out(of_sink, times, number)
        state = call_pass(fused, ps.END, said)
    else:
        state = passed(
            position, height, width, axes, rows_first, said, fused, windows, pixels, out, parts, item, channels, planar
        )
    if state != DONE:
        return state
    said[sh.USED] += 1 if done & df.USED else 0
    said[sh.DROPPED] += 1 if done & df.DROPPED else 0
    if size > 0 and done & df.GROWN:
        state = store_kernels.put(words, levels, places, own, keys, number, index[:size])
        said[sh.KEPT] += state == st.ADDED
        said[sh.FULL] |= state == st.FULL
        said[sh.CROWDED] += state == st.CROWDED
    return DONE
