"""A CPU JPEG decoder whose pixels equal libjpeg-turbo's, and which decodes only the region asked for.

    header.py    markers -> a header array              layout.py   header, region -> the blocks and planes needed
    tables.py    Huffman look-up tables                 stream.py   the scan without byte stuffing
    entropy.py   one block's coefficients               idct.py     one block's samples
    scan.py      the loop over all MCUs                 rows.py, pixels.py   upsampling, colour, rows out
    simd.py, memory.py   vectors and pointers for numba
    header_fields.py, layout_fields.py, scratch.py   what is in the arrays that these work on, and the arrays

Everything below `decode` is compiled (accel/native/units.py): nothing here imports numba.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from accel.native import units

from . import header_fields as hd
from .layout_fields import LAYOUT_SIZE
from .scratch import BLOCK_SIZE, CODES_SIZE, LOOK_SIZE, SLACK, SLOT_SIZE, SPARE, block_order

__all__ = ["MARKERS", "UNIT", "decode", "first_marker"]

SOURCES = ("codec/jpeg/*.py", "codec/header.py", "codec/progressive.py")
UNIT = units.Unit("jpeg", *SOURCES, seconds=4.5)
_prepare = UNIT.function("codec.jpeg.layout", "prepare", "u1[1] i8[1]w i8[2]w bool int int int int")
_decode_scan = UNIT.function(
    "codec.jpeg.scan",
    "decode_scan",
    "u1[1] i8[1] i8[2] int int u8[2]w u4[2]w u1[1] i2[2]w i2[1]w i8[2]w i8[1]w u1[1]w i8[1]w u1[1]w u1[1]w u1[3]w",
)
MARKERS = units.Unit("markers", "codec/jpeg/markers.py", seconds=0.5)
first_marker = MARKERS.function("codec.jpeg.markers", "first_marker", "u1[1] int")

_KEPT = 1 << 25  # scratch bytes of one kind that a thread keeps; what a larger picture needs is given back


class _Scratch(threading.local):
    """A thread's working memory, kept from picture to picture."""

    def __init__(self) -> None:
        self.header = np.empty(hd.HEADER_SIZE, np.int64)
        self.layout = np.empty((3, LAYOUT_SIZE), np.int64)
        # DC tables 0..3 and AC tables 4..7; a ninth row of `look` is working space
        self.look, self.codes = np.empty((9, LOOK_SIZE), np.uint64), np.empty((8, CODES_SIZE), np.uint32)
        self.order = block_order()
        self.quant, self.block = np.empty((3, 64), np.int16), np.empty(BLOCK_SIZE, np.int16)
        self.slots = np.empty((hd.MAX_BLOCKS_IN_MCU, SLOT_SIZE), np.int64)
        self.predictions = np.empty(3, np.int64)  # each component's last DC coefficient
        self.spare = np.empty(SPARE, np.uint8)  # for narrow rows
        self.ends = np.empty(1 << 8, np.int64)
        self.stream = np.empty(1 << 18, np.uint8)
        self.planes = np.empty(1 << 20, np.uint8)

    def room(self, name: str, size: int) -> Any:
        """The array `name`, grown to at least `size` items."""
        array = getattr(self, name)
        if len(array) < size:
            array = np.empty(size + size // 4, array.dtype)
            if array.nbytes <= _KEPT:
                setattr(self, name, array)
        return array


_scratch = _Scratch()


def decode(
    data: bytes | memoryview,
    box: tuple[int, int, int, int] | None = None,
    *,
    channels: int | None = None,
    out: np.ndarray | None = None,
) -> np.ndarray | None:
    """The pixels of a JPEG file, or of a region of it, as Pillow would give them.

    Args:
        data: the whole file.
        box: (top, left, height, width) in pixels; None for the whole picture.
        channels: 1 or 3; None for the file's own.  A grey file has equal channels when 3 are asked for.
        out: where to put them, C-contiguous uint8[height, width, channels]; its content is lost when None comes back.

    Returns:
        C-contiguous uint8[height, width, channels]; or None where the stream is out of scope (progressive, arithmetic,
        12 bits, CMYK, several scans), damaged or merely odd, where the box is not inside the picture, and where a
        colour file is asked for in one channel.  Pillow then decides what it is.

        Of a region's stream nothing below the region is read, beyond the markers.

    Raises:
        ValueError: channels is neither None, 1 nor 3, or out does not fit.
    """
    if channels not in (None, 1, 3):
        raise ValueError(f"channels must be None, 1 or 3, not {channels}")
    scratch, header = _scratch, _scratch.header
    source = np.frombuffer(data, np.uint8)
    top, left, height, width = (0, 0, 0, 0) if box is None else (int(edge) for edge in box)
    size = _prepare(source, header, scratch.layout, box is None, top, left, height, width)
    if size == 0:
        return None
    if box is None:
        height, width = int(header[hd.HEIGHT]), int(header[hd.WIDTH])
    own = int(header[hd.COMPONENTS])
    if channels == 1 and own == 3:
        return None
    shape = (height, width, channels or own)
    if out is None:
        out = np.empty(shape, np.uint8)
    elif out.shape != shape or out.dtype != np.uint8 or not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError(f"out must be a writeable, C-contiguous uint8 array of shape {shape}")
    done = _decode_scan(
        source, header, scratch.layout, top, left, scratch.look, scratch.codes, scratch.order, scratch.quant,
        scratch.block, scratch.slots, scratch.predictions, scratch.spare,
        scratch.room("ends", int(header[hd.INTERVALS])), scratch.room("stream", len(source) + SLACK),
        scratch.room("planes", size), out,
    )  # fmt: skip
    return out if done else None
