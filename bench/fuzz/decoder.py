"""Running accel's JPEG decoder alone, with guard pages behind or before all that it reads and writes."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, Literal
from unittest import mock

import numpy as np
import numpy.typing as npt

from accel.codec import jpeg
from accel.codec.header import claim
from accel.codec.jpeg import planes

Array = npt.NDArray[Any]
Pixels = npt.NDArray[np.uint8]
Box = tuple[int, int, int, int]

Side = Literal["before", "behind"]
SIDES: tuple[Side, Side] = ("before", "behind")
"""The side on which a guard page touches the array; on the other there may be some bytes before the next one."""

_libc = ctypes.CDLL(None, use_errno=True)
_NOTHING = 0  # PROT_NONE


def guarded(shape: tuple[int, ...], dtype: npt.DTypeLike, side: Side, fill: int = 0xA5) -> Array:
    """A C-contiguous array in its own pages, which live as long as it does, filled with the byte ``fill``."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    page = mmap.PAGESIZE
    pages = -(-size // page) + 2
    memory = mmap.mmap(-1, pages * page)
    everything = np.frombuffer(memory, np.uint8)
    for guard in (0, (pages - 1) * page):
        address = ctypes.c_void_p(everything.ctypes.data + guard)
        if _libc.mprotect(address, ctypes.c_size_t(page), _NOTHING):
            raise OSError(ctypes.get_errno(), "mprotect")
    start = page if side == "before" else (pages - 1) * page - size
    array = everything[start : start + size]
    array[:] = fill
    return array.view(dtype).reshape(shape)


def guarded_copy(array: Array, side: Side) -> Array:
    copy = guarded(array.shape, array.dtype, side)
    copy[...] = array
    return copy


def guarded_scratch(side: Side) -> AbstractContextManager[Any]:
    """A context in which this thread's working memory has exactly the sizes promised to the decoder."""
    fixed = _fixed(side)
    return mock.patch.dict(
        vars(jpeg._scratch), fixed, room=lambda name, size: guarded((size,), fixed[name].dtype, side)
    )


@cache
def _fixed(side: Side) -> dict[str, Any]:
    """The part of the working memory that has the same size for every file."""
    return {name: _copied(value, side) for name, value in vars(jpeg._scratch).items()}


def _copied(value: Any, side: Side) -> Any:
    if isinstance(value, np.ndarray):
        return guarded_copy(value, side)
    return tuple(_copied(each, side) for each in value) if isinstance(value, tuple) else value


def differences(data: bytes, boxes: Sequence[Box], expected: Pixels | None, refused: bool) -> Iterator[str]:
    """The decoder's wrong results, for the file and for regions of it: neither None nor Pillow's pixels.

    Args:
        boxes: (top, left, height, width), inside the picture or not.
        expected: Pillow's pixels, [height, width, 1 or 3]; None if there are none to compare with.
        refused: whether Pillow opened the file and then refused it, so that there must be no pixels. (The decoder is
            never used for files that Pillow does not open.)
    """
    source = np.frombuffer(data, np.uint8)
    header = claim(data)
    refused = refused and header is not None and header.ordinary
    for side in SIDES:
        file = guarded_copy(source, side)
        for box in (None, *boxes):
            with guarded_scratch(side):
                found = jpeg.decode(file.data, box, out=_room(box, expected, side))
            if found is None:
                continue
            where = f"decode(data, {box}), guard page {side}"
            if refused:
                yield f"{where}: pixels of what Pillow refuses"
            elif expected is not None and not np.array_equal(found, part := _part(expected, box)):
                yield f"{where}: {described(found, part)}"
        yield from _of_planes(file, [box for box in boxes if min(box) >= 0], expected, side)


def _of_planes(file: Array, boxes: Sequence[Box], expected: Pixels | None, side: Side) -> Iterator[str]:
    """The same for pixels made from the file's planes, packed and unpacked."""
    with guarded_scratch(side):
        packed = planes.encode(file.data)
    if packed is None or expected is None:
        return
    for box in (*boxes, (0, 0, *expected.shape[:2])):
        first, last = planes.needed(packed.meta, box)
        if first == last:
            continue
        start = packed.ends[first - 1] if first else 0
        parts = guarded_copy(packed.content[start : packed.ends[last - 1]], side)
        with guarded_scratch(side):
            found = planes.region(packed.meta, parts, first, box, expected.shape[2])
        part = _part(expected, box)
        if found is None or not np.array_equal(found, part):
            what = "nothing" if found is None else described(found, part)
            yield f"planes of data, {box}, guard page {side}: {what}"


def _room(box: Box | None, expected: Pixels | None, side: Side) -> Pixels | None:
    """The array for the pixels; None if their number is not known."""
    part = None if expected is None else _part(expected, box)
    if part is None or part.shape[2] not in (1, 3) or (box is not None and part.shape[:2] != box[2:]):
        return None
    return guarded(part.shape, np.uint8, side)


def _part(pixels: Pixels, box: Box | None) -> Pixels:
    top, left, height, width = box or (0, 0, *pixels.shape[:2])
    return pixels[max(top, 0) : top + height, max(left, 0) : left + width]


def described(found: Array, expected: Array) -> str:
    """A description of how two arrays differ."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"{found.dtype} {found.shape} in place of {expected.dtype} {expected.shape}"
    distance = np.abs(found.astype(float) - expected.astype(float))
    first = tuple(int(edge) for edge in np.unravel_index(int(np.argmax(distance > 0)), distance.shape))
    count = np.count_nonzero(distance)
    return f"{count} of {distance.size} values differ, by up to {distance.max():g}, first at {first}"
