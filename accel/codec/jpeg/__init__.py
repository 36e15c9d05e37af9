"""A CPU JPEG decoder whose pixels equal libjpeg-turbo's, and which decodes only the region asked for.

    header.py    markers -> a header array              layout.py   header, region -> the blocks and planes needed
    tables.py    quantisers, Huffman look-up tables     entropy.py  the scan without stuffing, one block's coefficients
    idct.py      one block's samples                    walk.py     MCUs one after the other
    scan.py      the walk over the needed MCUs          pixels.py   upsampling, colour, rows out
    index.py     one picture's index, as bytes          points.py   the points of a stream index
    planes.py    pictures as planes, for a cache        planes_kernels.py   packing and unpacking them
    *_fields.py, scratch.py   the layout of the arrays that these work on

Everything below `decode` is compiled (accel/system/native/units.py): nothing here imports numba.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from accel.system.native import units
from accel.system.native.calls import Call

from . import decode_fields as df
from . import header_fields as hd
from .index import Index
from .index_fields import MOST_PASSED, POINT, most_points
from .layout_fields import LAYOUT_SIZE
from .scratch import (
    AT_ONCE,
    BLOCK_SIZE,
    CODES_SIZE,
    LOOK_ROW,
    SLACK,
    SLOT_SIZE,
    SPARE,
    STATE_SIZE,
    TRAIL,
    block_order,
    idct_tables,
)

__all__ = ["MARKERS", "UNIT", "Index", "decode", "digests", "first_marker", "known_points", "sound_parts"]

SOURCES = (
    *("codec/jpeg/*.py", "codec/header.py"),
    *(f"system/native/{name}.py" for name in ("call_kernels", "digest", "memory", "signatures", "simd")),
)
UNIT = units.Unit("jpeg", *SOURCES, seconds=4.5)
PREPARE = UNIT.function("codec.jpeg.layout", "prepare", df.PREPARE)
DECODE = UNIT.function("codec.jpeg.scan", "decode_scan", df.DECODE)
_digests = UNIT.function("system.native.digest", "digests", "u1[1] i8[1] i8[1] u4[1] i8[1]w u8[1]w")
_sound_parts = UNIT.function("system.native.digest", "sound_parts", "u1[1] u4[1] i8[1] int int u8[1]w")
_known_points = UNIT.function("codec.jpeg.scan", "known_points", "u1[1] i8[1]w u2[1] u8[1]w")
MARKERS = units.Unit("markers", "codec/jpeg/markers.py", seconds=0.5)
first_marker = MARKERS.function("codec.jpeg.markers", "first_marker", "u1[1] int")

_KEPT = 1 << 25  # the most scratch bytes of one kind that a thread keeps; for larger pictures they are freed


class _Scratch(threading.local):
    """A thread's working memory, kept from picture to picture."""

    def __init__(self) -> None:
        self.header = np.empty(hd.HEADER_SIZE, np.int64)
        self.layout = np.empty((3, LAYOUT_SIZE), np.int64)
        # DC tables 0..3 and AC tables 4..7; the ninth row of `look` is working space
        self.look, self.codes = np.empty((9, LOOK_ROW), np.uint64), np.zeros((8, CODES_SIZE), np.uint32)
        self.order, self.idct = block_order(), idct_tables()
        self.quant, self.block = np.empty((3, 64), np.int16), np.empty(2 * BLOCK_SIZE, np.int16)
        self.slots = np.empty((hd.MAX_BLOCKS_IN_MCU, SLOT_SIZE), np.int64)
        self.state = np.empty(STATE_SIZE, np.int64)
        self.trail = np.empty((TRAIL + 2) * MOST_PASSED, np.int64)  # and the gaps between points (scan.py)
        self.points = np.empty(1 << 14, np.int32)
        self.sums = np.empty(8, np.uint64)
        self.spare = np.empty(SPARE, np.uint8)  # for narrow rows
        self.ends = np.empty(1 << 8, np.int64)
        self.stuffed = np.empty(1 << 17, np.uint32)
        self.stream = np.empty(1 << 18, np.uint8)
        self.planes, self.packed = np.empty(1 << 20, np.uint8), np.empty(0, np.uint8)
        self.span = np.empty(2, np.int64)  # the parts that a region needs
        self.calls: tuple[Call, Call] | None = None
        self.enough = -1  # the most bytes of a file that ``calls`` has memory for

    def room(self, name: str, size: int) -> Any:
        """The array `name`, grown to at least `size` items."""
        array = getattr(self, name)
        if len(array) < size:
            array = np.empty(size + size // 4, array.dtype)
            if array.nbytes <= _KEPT:
                setattr(self, name, array)
        return array

    def decoding(self, ends: int, file: int, planes: int) -> list[Any]:
        """The arguments of ``DECODE`` from `look` to `sums`; see ``_sizes``."""
        sizes = _sizes(ends, file, planes)
        return [self.room(name, sizes[name]) if name in sizes else getattr(self, name) for name in df.WORKING]


def _sizes(ends: int, file: int, planes: int) -> dict[str, int]:
    """The items of memory for so many restart intervals, bytes of a file, and bytes of planes."""
    points, stuffed = POINT * most_points(file), file // 2 + AT_ONCE
    return {"ends": ends, "stuffed": stuffed, "stream": file + SLACK, "planes": planes, "points": points}


_scratch = _Scratch()
_NONE, _NO_SINK = np.empty(0, np.uint16), np.empty(0, np.int64)


def decode(
    data: bytes | memoryview,
    box: tuple[int, int, int, int] | None = None,
    *,
    channels: int | None = None,
    out: np.ndarray | None = None,
    index: Index | None = None,
) -> np.ndarray | None:
    """The pixels of a JPEG file, or of a region of it, as Pillow would give them.

    Args:
        data: the whole file.
        box: (top, left, height, width) in pixels; None for the whole picture.
        channels: 1 or 3; None for the file's own.  A grey file has equal channels when 3 are asked for.
        out: memory for them, C-contiguous uint8[height, width, channels]; its content is lost if None is returned.
        index: the file's stream index from earlier decodes, to which this one adds; it changes no pixel.  It is
            cleared if None is returned.

    Returns:
        C-contiguous uint8[height, width, channels]; or None if the stream is out of scope (progressive, arithmetic,
        12 bits, CMYK, several scans), damaged or merely odd, if the box is not inside the picture, or if a colour file
        is asked for in one channel.  Pillow then decides what it is.

        The stream below the region is not decoded; it is only searched for markers, or, with an index, compared.

    Raises:
        ValueError: channels is neither None, 1 nor 3, or out does not fit.
    """
    found = _decode(data, box, channels, index, out=out)
    return None if found is None else found[0]


def decode_whole(
    data: bytes | memoryview, box: tuple[int, int, int, int] | None, channels: int | None, index: Index | None
) -> tuple[np.ndarray, np.ndarray] | None:
    """Decode the whole file: the pixels of a box, and the planes of the picture, as `_scratch` describes them.

    The planes are in the thread's working memory, valid until it decodes again.  None as for `decode`.
    """
    return _decode(data, box, channels, index, whole=True)


def _decode(
    data: bytes | memoryview, box: Any, channels: int | None, index: Index | None, **given: Any
) -> tuple[np.ndarray, np.ndarray] | None:
    found = _tried(data, box, channels, index, **given)
    if found is None and index is not None:
        index.clear()
    return found


def _tried(
    data: bytes | memoryview,
    box: tuple[int, int, int, int] | None,
    channels: int | None,
    index: Index | None,
    *,
    out: np.ndarray | None = None,
    whole: bool = False,
) -> tuple[np.ndarray, np.ndarray] | None:
    if channels not in (None, 1, 3):
        raise ValueError(f"channels must be None, 1 or 3, not {channels}")
    header, words = _scratch.header, _NONE
    source = np.frombuffer(data, np.uint8)
    top, left, height, width = (0, 0, 0, 0) if box is None else (int(edge) for edge in box)
    size = PREPARE(source, header, _scratch.layout, whole or box is None, top, left, height, width)
    if size == 0:
        return None
    rows, columns = int(header[hd.HEIGHT]), int(header[hd.WIDTH])
    if box is None:
        height, width = rows, columns
    elif whole and not (0 <= top < top + height <= rows and 0 <= left < left + width <= columns):
        return None
    own = int(header[hd.COMPONENTS])
    if channels == 1 and own == 3:
        return None
    shape = (height, width, channels or own)
    if out is None:
        out = np.empty(shape, np.uint8)
    elif out.shape != shape or out.dtype != np.uint8 or not out.flags.c_contiguous or not out.flags.writeable:
        raise ValueError(f"out must be a writeable, C-contiguous uint8 array of shape {shape}")
    if index is not None:
        words = index.of(int(header[hd.INDEX_BYTES]))
    memory = _scratch.decoding(int(header[hd.INTERVALS]), len(source), size)
    done = DECODE(source, header, _scratch.layout, top, left, *memory, words, height, _NO_SINK, out)
    if not done:
        return None
    if index is not None:
        index.set(done & df.USED != 0, done & df.GROWN != 0, done & df.DROPPED != 0)
    return out, memory[df.PLANES - df.MEMORY]


def calls(largest: int) -> tuple[Call, Call, np.ndarray]:
    """The calls of ``PREPARE`` and ``DECODE`` with this thread's working memory and no sink.

    They are for files of at most ``largest`` bytes. Also the header array, which the first one fills.
    """
    own = _scratch
    if own.calls is None:
        prepare = Call(PREPARE, None, own.header, own.layout, False, 0, 0, 0, 0)
        memory = own.decoding(0, 0, 0)
        own.calls = prepare, Call(DECODE, None, own.header, own.layout, 0, 0, *memory, None, 0, None, None)
        own.enough = -1
    prepare, decode = own.calls
    if largest > own.enough:
        for name, size in _sizes(0, largest, 0).items():
            grow(decode, name, size)
        own.enough = largest
    return prepare, decode, own.header


def grow(decode: Call, name: str, size: int) -> None:
    """Give a call at least so many items of this thread's working memory."""
    array = _scratch.room(name, size)
    decode.hold(df.MEMORY + df.WORKING.index(name), array)
    if array is not getattr(_scratch, name):  # so large that it is freed with the call
        _scratch.calls = None


def room(name: str, size: int) -> Any:
    """This thread's working memory of a name, with at least so many items."""
    return _scratch.room(name, size)


def digests(data: Any, begins: Any, counts: Any, ends: Any) -> Any:
    """The digests, int64[n], of parts of several contents in a buffer of bytes; unequal parts hardly ever share one.

    ``begins``, ``counts``: the offset of each content in the buffer, and its number of parts; ``ends``: uint32[n], the
    ends of all parts, each as an offset in its content.

    Raises:
        ValueError: ``begins`` and ``counts`` differ in length, or the counts do not sum to n.
    """
    found = np.empty(len(ends), np.int64)
    places = np.array(begins, np.int64), np.array(counts, np.int64)
    if len(places[0]) != len(places[1]) or places[1].sum() != len(ends):
        raise ValueError("each part is one content's")
    _digests(np.frombuffer(data, np.uint8), *places, ends, found, _scratch.sums)
    return found


def sound_parts(data: Any, ends: Any, digests: Any, first: int, last: int) -> bool:
    """Whether the parts from ``first`` to before ``last``, which ``data`` consists of, have their digests.

    ``ends``: the ends of all parts, uint32, counted from the first part's beginning; ``digests``: int64; both are
    buffers.
    """
    arrays = np.frombuffer(data, np.uint8), np.frombuffer(ends, np.uint32), np.frombuffer(digests, np.int64)
    return _sound_parts(*arrays, first, last, _scratch.sums) == last - first


def known_points(data: bytes | memoryview, index: np.ndarray) -> int:
    """The number of points that an index (``Index.bytes``) has of the file; 0 if it is not the file's."""
    words = np.ascontiguousarray(index).view(np.uint16) if index.nbytes % 8 == 0 else _NONE
    return _known_points(np.frombuffer(data, np.uint8), _scratch.header, words, _scratch.sums)
