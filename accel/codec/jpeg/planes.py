"""Pictures as planes after the inverse DCT, packed without loss, which a cache keeps in place of entropy-coded data.

`encode` packs a file to *parts*, which are bands of its rows, and a description, `meta`. From the parts that a region
needs (`needed`), `region` makes its pixels, equal in every bit to those of decoding the file.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from accel.codec import jpeg
from accel.system.native import units
from accel.system.native.calls import Call

from . import planes_fields as pf

__all__ = ["UNIT", "Encoded", "calls", "encode", "needed", "region"]

UNIT = units.Unit("planes", *jpeg.SOURCES, seconds=3.5)
_pack = UNIT.function("codec.jpeg.planes_kernels", "pack", "i8[1] i8[2] u8[2] u1[1]w u8[1]w u2[1]w u1[1]w i8[1]w")
_needed = UNIT.function("codec.jpeg.planes_kernels", "needed", pf.NEEDED)
_unpack = UNIT.function("codec.jpeg.planes_kernels", "unpack", pf.UNPACK)
_CODES = pf.code_table()


class Encoded(NamedTuple):
    """A picture as planes: its description, its parts (uint8[n], one after another, and the end of each), and the
    pixels of the box, uint8 [height, width, channels].

    The parts are in the thread's working memory: they must be copied before its next `encode`.
    """

    meta: bytes
    content: np.ndarray
    ends: np.ndarray
    pixels: np.ndarray


def encode(
    data: bytes | memoryview,
    box: tuple[int, int, int, int] | None = None,
    *,
    channels: int | None = None,
    index: jpeg.Index | None = None,
) -> Encoded | None:
    """Decode the whole file and pack it; arguments and pixels are those of `accel.codec.jpeg.decode`.

    None if `decode` would return None for the whole file; it may still decode a region.
    """
    found = jpeg.decode_whole(data, box, channels, index)
    if found is None:
        return None
    pixels, planes = found
    scratch, meta, ends = jpeg._scratch, np.empty(pf.META_SIZE, np.uint16), np.empty(pf.PARTS, np.int64)
    packed = scratch.room("packed", len(planes) + len(planes) // 32)
    count = _pack(scratch.header, scratch.layout, _CODES, planes, scratch.sums, meta, packed, ends)
    return Encoded(meta.tobytes(), packed[: ends[count - 1]], ends[:count], pixels)


def needed(meta: bytes, box: tuple[int, int, int, int]) -> tuple[int, int]:
    """The first part that a region needs, and the one behind the last; (0, 0): there is no such region."""
    scratch = jpeg._scratch
    if not _needed(_words(meta), scratch.header, scratch.layout, *(int(edge) for edge in box), scratch.span):
        return 0, 0
    first, last = scratch.span.tolist()
    return first, last


def region(
    meta: bytes,
    parts: np.ndarray,
    first: int,
    box: tuple[int, int, int, int],
    channels: int,
    out: np.ndarray | None = None,
) -> np.ndarray | None:
    """The pixels of a region, from the parts that it needs.

    Args:
        meta: the description from `encode`. parts: uint8[n], those that `needed` names, one after another, from number
            ``first`` on; more bytes may follow.
        box, channels: (top, left, height, width) in pixels; 1 or 3, as for `decode`.
        out: memory for the pixels, C-contiguous uint8[height, width, channels].

    Returns:
        ``out``, or new memory; None if meta or the parts are visibly damaged (changed samples are not noticed), if
        there is no such region, or if a colour picture is asked for in one channel.

    Raises:
        ValueError: out does not fit.
    """
    scratch, words = jpeg._scratch, _words(meta)
    top, left, height, width = (int(edge) for edge in box)
    size = _needed(words, scratch.header, scratch.layout, top, left, height, width, scratch.span)
    if size == 0 or first != scratch.span[0] or channels < words[pf.COMPONENTS]:
        return None
    if out is None:
        out = np.empty((height, width, channels), np.uint8)
    elif out.shape != (height, width, channels):
        raise ValueError(f"out must be a uint8 array of shape {(height, width, channels)}")
    planes = scratch.room("planes", size)
    done = _unpack(words, scratch.header, scratch.layout, _CODES, parts, first, top, left, planes, scratch.spare, out)
    return out if done else None


def calls(parts: np.ndarray) -> tuple[Call, Call, np.ndarray]:
    """The calls of `needed` and `unpack` with this thread's working memory, and the span that the first one fills; for
    pictures whose parts are put into ``parts``."""
    own = jpeg._scratch
    needed = Call(_needed, None, own.header, own.layout, 0, 0, 0, 0, own.span)
    unpack = Call(_unpack, None, own.header, own.layout, _CODES, parts, 0, 0, 0, own.planes, own.spare, None)
    return needed, unpack, own.span


def _words(meta: bytes) -> np.ndarray:
    return np.frombuffer(meta, np.uint16) if len(meta) == 2 * pf.META_SIZE else _NOTHING


_NOTHING = np.empty(0, np.uint16)
