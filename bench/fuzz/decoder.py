"""accel's JPEG decoder by itself, with guard pages behind or before all that it reads and writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from accel.codec import jpeg
from accel.codec.header import claim
from bench.fuzz.guard_pages import SIDES, Side, guarded, guarded_copy

Pixels = npt.NDArray[np.uint8]
Box = tuple[int, int, int, int]


@contextmanager
def _guarded_scratch(side: Side) -> Iterator[None]:
    """This thread's working memory, of exactly the sizes that are promised to the decoder."""
    own = vars(jpeg._scratch)
    kept = dict(own)
    own.update(_fixed(side), room=lambda name, size: guarded((size,), kept[name].dtype, side))
    try:
        yield
    finally:
        own.clear()
        own.update(kept)


@cache
def _fixed(side: Side) -> dict[str, Any]:
    """The part of it that has the same size for every file."""
    return {name: _copied(value, side) for name, value in vars(jpeg._scratch).items()}


def _copied(value: Any, side: Side) -> Any:
    if isinstance(value, np.ndarray):
        return guarded_copy(value, side)
    return tuple(_copied(each, side) for each in value) if isinstance(value, tuple) else value


def differences(data: bytes, boxes: Sequence[Box], expected: Pixels | None, refused: bool) -> Iterator[str]:
    """The decoder's answers, for the file and for regions of it, that are neither None nor Pillow's pixels.

    Args:
        boxes: (top, left, height, width), inside the picture or not.
        expected: Pillow's pixels, [height, width, 1 or 3]; None: there are none to compare with.
        refused: Pillow opened the file and then refused it, so that there must be no pixels. (What it does not open,
            the decoder is never asked for.)
    """
    source = np.frombuffer(data, np.uint8)
    header = claim(data)
    refused = refused and header is not None and header.ordinary
    for side in SIDES:
        file = guarded_copy(source, side)
        for box in (None, *boxes):
            with _guarded_scratch(side):
                found = jpeg.decode(file.data, box, out=_room(box, expected, side))
            if found is None:
                continue
            where = f"decode(data, {box}), guard page {side}"
            if refused:
                yield f"{where}: pixels of what Pillow refuses"
            elif expected is not None and not np.array_equal(found, part := _part(expected, box)):
                yield f"{where}: {described(found, part)}"


def _room(box: Box | None, expected: Pixels | None, side: Side) -> Pixels | None:
    """Where the pixels go to; None, where their number is not known."""
    if expected is None or expected.shape[2] not in (1, 3):
        return None
    part = _part(expected, box)
    if box is not None and part.shape[:2] != box[2:]:
        return None
    return guarded(part.shape, np.uint8, side)


def _part(pixels: Pixels, box: Box | None) -> Pixels:
    if box is None:
        return pixels
    top, left, height, width = box
    return pixels[max(top, 0) : top + height, max(left, 0) : left + width]


def described(found: npt.NDArray[Any], expected: npt.NDArray[Any]) -> str:
    """How two arrays differ."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"{found.dtype} {found.shape} in place of {expected.dtype} {expected.shape}"
    distance = np.abs(found.astype(float) - expected.astype(float))
    first = tuple(int(edge) for edge in np.unravel_index(int(np.argmax(distance > 0)), distance.shape))
    count = np.count_nonzero(distance)
    return f"{count} of {distance.size} values differ, by up to {distance.max():g}, first at {first}"
