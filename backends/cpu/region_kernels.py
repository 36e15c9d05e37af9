"""Region readers of a share (``share_fields.READER``): of files, of a cache's planes and of a cache's results."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit

from accel.backends.cpu import pass_fields as ps
from accel.backends.shared.numba_memory import pointer
from accel.cache import reading_fields as rd
from accel.codec import store_fields as st
from accel.codec import store_kernels
from accel.codec.files import fields as of
from accel.codec.jpeg import decode_fields as df
from accel.codec.jpeg import header_fields as hd
from accel.codec.jpeg import planes_fields as pf
from accel.planning.column_fields import LENGTH, SIZE
from accel.system.native.call_fields import FIRST
from accel.system.native.call_kernels import caller, length, show
from accel.system.native.memory import i64

from . import share_fields as sh
from .share_kernels import BEGUN, address_of, begin_bands, length_of, note_time, row, show_pass, too_small

_prepare = caller(df.PREPARE)
_decode = caller(df.DECODE)
_read = caller(rd.SIGNATURE)
_needed = caller(pf.NEEDED)
_unpack = caller(pf.UNPACK)


# -- files ----------------------------------------------------------------------------------------------------


@njit
def list_files(
    plain: Any,
    files: Any,
    boxes: Any,
    axes: Any,
    rows_first: Any,
    channels: int,
    limits: Any,
    regions: Any,
    positions: Any,
    largest: Any,
) -> Any:
    """List the files of a batch that are the plain case and whose regions fit into memory; return their number.

    Args:
        plain: uint8 [images], whether a file is the plain case. files: int64 [images, 2], its bytes are the second.
        boxes, axes, rows_first, channels: of ``Columns``.
        limits: the bytes above which a region comes in bands if the pass can take it so, and the most in memory.
        regions: int64 [images, REGION], is filled. positions: int64 [images], gets the places of the listed files.
        largest: int64 [2], gets the bytes of the largest file, and of the largest region in memory.
    """
    count, largest[0], largest[1] = 0, 0, 0
    for image in range(len(plain)):
        height, width = boxes[image, 2], boxes[image, 3] * channels
        large = height * width > limits[0] and min(height, width) >= ps.LEAST
        in_bands = large and axes[1, image, LENGTH] != axes[1, image, SIZE] and rows_first[image] == 0
        size = width * ps.BAND + ps.BEHIND if in_bands else width * height
        regions[image, sh.IN_BANDS], regions[image, sh.BYTES] = in_bands, size
        if plain[image] != 0 and size <= limits[1]:
            largest[0], largest[1] = max(largest[0], files[image, 1]), max(largest[1], size)
            positions[count] = image
            count += 1
    return count


@njit
def read_file(number: int, share: Any) -> Any:
    """Decode the region of a baseline JPEG file, with the index of it that the store has, or else index it."""
    position = row(share, sh.POSITIONS)[number]
    in_bands = row(share, sh.REGIONS, position, sh.REGION)[sh.IN_BANDS] != 0
    if in_bands:
        show_pass(share, position)
        state = begin_bands(share)
        if state != sh.DONE:
            return state
        note_time(share, number, BEGUN)
    box, file, header = row(share, sh.BOXES, position, 4), row(share, sh.FILES, position, 2), row(share, sh.HEADER)
    prepare, decode, content = row(share, sh.PREPARE), row(share, sh.DECODE), address_of(share, sh.CONTENT) + file[0]
    show(prepare, 0, content, file[1])
    for i in range(4):
        prepare[FIRST + 4 + i] = box[i]
    needed = _prepare(prepare)
    if needed <= 0 or share[sh.CHANNELS] < header[hd.COMPONENTS]:
        return sh.OTHERWISE
    if header[hd.INTERVALS] > length(decode, df.ENDS):
        return too_small(share, sh.ENDS, header[hd.INTERVALS])
    if needed > length(decode, df.PLANES):
        return too_small(share, sh.PLANES, needed)
    size = _index_size(share, position)
    if size > length_of(share, sh.OF_INDEX):
        return too_small(share, sh.INDEX, size)
    size = _look_up(share, position, size)
    if size < 0:
        return sh.OTHERWISE
    show(decode, 0, content, file[1])
    decode[FIRST + 3], decode[FIRST + 4], decode[FIRST + df.HEIGHT] = box[0], box[1], box[2]
    show(decode, df.INDEX, address_of(share, sh.OF_INDEX), size << 2)
    show(decode, df.SINK, address_of(share, sh.SINK), length_of(share, sh.SINK) if in_bands else 0)
    show(decode, df.OUT, address_of(share, sh.PIXELS), ps.BAND if in_bands else box[2], box[3], share[sh.CHANNELS])
    done = _decode(decode)
    if done <= 0:
        return sh.OTHERWISE
    share[sh.USED] += done & df.USED != 0
    share[sh.DROPPED] += done & df.DROPPED != 0
    if size > 0 and done & df.GROWN:
        _keep(share, position, size)
    return sh.DONE


@njit
def _index_size(share: Any, position: Any) -> Any:
    """The words of an index of the file whose header was read; 0 if none is used."""
    is_used = row(share, sh.KNOWN, position, of.FIELDS)[of.WRITTEN] >= 0 and length_of(share, sh.LEVELS) > 0
    return row(share, sh.HEADER)[hd.INDEX_BYTES] >> 3 if is_used else i64(0)


@njit
def _look_up(share: Any, position: Any, size: Any) -> Any:
    """Copy a file's index of ``size`` words from the store, or, if it has none, make an empty one.

    Return its words: 0 if the store is full, so that none is made; -1 if the store's is of another size.
    """
    if size == 0:
        return size
    words, levels, places = _store(share)
    index = _index(share, size)
    found = store_kernels.get(words, levels, places, _key(share, position), 0, index)
    if found == 0:
        index[0] = 0  # no points are known
        return size * (share[sh.FULL] == 0)
    return size if found == size else i64(-1)


@njit
def _keep(share: Any, position: Any, size: Any) -> None:
    """Write a file's index to the store, and count what became of it."""
    words, levels, places = _store(share)
    own = carray(pointer(address_of(share, sh.OWN)), (2,), np.int64)
    state = store_kernels.put(words, levels, places, own, _key(share, position), 0, _index(share, size))
    share[sh.KEPT] += state == st.ADDED
    share[sh.FULL] |= state == st.FULL
    share[sh.CROWDED] += state == st.CROWDED


@njit
def _store(share: Any) -> Any:
    """The memory, the tables and the segments' places of the store of indexes, as ``store_kernels`` takes them."""
    words = carray(pointer(address_of(share, sh.STORE)), (length_of(share, sh.STORE),), np.uint64)
    levels = carray(pointer(address_of(share, sh.LEVELS)), (length_of(share, sh.LEVELS), 2), np.int64)
    return words, levels, carray(pointer(address_of(share, sh.PLACES)), (2,), np.int64)


@njit
def _index(share: Any, size: Any) -> Any:
    return carray(pointer(address_of(share, sh.OF_INDEX)), (size,), np.uint64)


@njit
def _key(share: Any, position: Any) -> Any:
    """The key of a file, uint64 [1, KEY]."""
    place = address_of(share, sh.KNOWN) + 8 * (of.FIELDS * position + of.DEVICE)
    return carray(pointer(place), (1, st.KEY), np.uint64)


# -- entries of a cache -----------------------------------------------------------------------------------------


@njit
def read_planes(number: int, share: Any) -> Any:
    """Read and check the parts of a half-decoded picture that its region needs, and unpack the region."""
    box, channels = row(share, sh.BOXES, row(share, sh.POSITIONS)[number], 4), share[sh.CHANNELS]
    described = address_of(share, sh.DESCRIPTIONS) + 2 * pf.META_SIZE * number
    needed, unpack, span = row(share, sh.NEEDED), row(share, sh.UNPACK), row(share, sh.SPAN)
    show(needed, 0, described, pf.META_SIZE)
    for i in range(4):
        needed[FIRST + pf.BOX + i] = box[i]
    size = _needed(needed)
    if size <= 0 or channels < carray(pointer(described), (pf.META_SIZE,), np.uint16)[pf.COMPONENTS]:
        return sh.OTHERWISE
    if size > length(unpack, pf.PLANES):
        return too_small(share, sh.PLANES, size)
    entry = row(share, sh.ROWS, number, rd.ROW)
    entry[rd.BEGIN], entry[rd.END] = span[0], span[1]
    if read_result(number, share) != sh.DONE:
        return sh.OTHERWISE
    show(unpack, 0, described, pf.META_SIZE)
    unpack[FIRST + pf.FROM], unpack[FIRST + pf.FROM + 1], unpack[FIRST + pf.FROM + 2] = span[0], box[0], box[1]
    show(unpack, pf.OUT, address_of(share, sh.PIXELS), box[2], box[3], channels)
    return sh.DONE if _unpack(unpack) > 0 else sh.OTHERWISE


@njit
def read_result(number: int, share: Any) -> Any:
    """Read and check parts of an entry."""
    entry, read = row(share, sh.ROWS, number, rd.ROW), row(share, sh.READ)
    show(read, rd.WANTED, address_of(share, sh.ROWS) + 8 * rd.ROW * number, 1, rd.ROW)
    begin = address_of(share, sh.NUMBERS) + 4 * row(share, sh.BEGINS)[number]
    show(read, rd.NUMBERS, begin, 3 * entry[rd.COUNT])
    return sh.DONE if _read(read) == 1 else sh.OTHERWISE
