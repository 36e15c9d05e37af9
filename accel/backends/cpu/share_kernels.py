"""A thread's share of a batch in one call: for each image a region reader, called by its address, then the pass."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils

from accel.backends.cpu import pass_fields as ps
from accel.backends.shared.numba_memory import pointer
from accel.cache import reading_fields as rd
from accel.codec import store_fields as st
from accel.codec import store_kernels
from accel.codec.files import fields as of
from accel.codec.jpeg import decode_fields as df
from accel.codec.jpeg import header_fields as hd
from accel.codec.jpeg import planes_fields as pf
from accel.planning.column_fields import AXIS, BEGIN, LENGTH, SHOWN, SIZE, START, STEP, WINDOW, WINDOW_STEP
from accel.system.native.call_kernels import address, caller, float_bits, length, show, word_at
from accel.system.native.intrinsics import emitted
from accel.system.native.memory import advanced, byte_at, i64, pointer_to, take_numbers, u64
from accel.system.native.signatures import FIRST, HEAD

from . import share_fields as sh

BEGUN, ENDED = 0, 1
"""Moments of an image's reading, for ``note_time``."""

_read = caller(sh.READER)
_pass = caller(ps.SIGNATURE)
_take_rows = caller(ps.TAKE_ROWS)
_prepare = caller(df.PREPARE)
_decode = caller(df.DECODE)
_read_entry = caller(rd.SIGNATURE)
_needed = caller(pf.NEEDED)
_unpack = caller(pf.UNPACK)


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
        share[sh.PART], share[sh.SPENT], share[sh.AT] = ps.ALL, 0, address_of(share, sh.PIXELS)
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
    """Set the arguments of an image's pass, which reads the region at AT and writes its part of TARGET."""
    fused, box, part = row(share, sh.PASS_CALL), row(share, sh.BOXES, position, 4), row(share, sh.PARTS, position, 3)
    channels, rows, columns = share[sh.CHANNELS], part[SHOWN], part[SHOWN + 1]
    show(fused, 0, share[sh.AT], box[2], box[3], channels)
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
    positions = carray(pointer(window), (shown,), np.int32)
    for i in range(shown):
        where = numbers[WINDOW] + numbers[WINDOW_STEP] * i
        positions[i] = where if 0 <= where < numbers[SIZE] else -1
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


# -- pictures, and entries of a cache -----------------------------------------------------------------------------


@njit
def read_picture(number: int, share: Any) -> Any:
    """Say where a picture is."""
    share[sh.AT] = address_of(share, sh.CONTENT) + row(share, sh.FILES, number, 3)[0]
    return sh.DONE


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
    return sh.DONE if _read_entry(read) == 1 else sh.OTHERWISE
