"""Files of which a cache has something: looked up by their keys when they are opened, and not opened then.

What is found is believed if it was made by the same versions of everything that has a part in pixels. What it lacks,
the file itself has, which is read then (``accel.recipe.Source``).
"""

from __future__ import annotations

import os
import platform
import struct
from functools import cache, lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import PIL
import torch
import torchvision
from PIL import Image, ImageFile, features

from accel.cache import entry
from accel.cache.cache import Cache
from accel.cache.entry import PIXELS, PLANES, RESULT, Entry, File, packed_key
from accel.cache.folder import in_memory
from accel.codec.engines import Data
from accel.codec.foreign import DECODERS, PILLOW
from accel.codec.header import Header, Raw
from accel.options import Options, Selection
from accel.recipe import Encoded, Source
from accel.system import fork
from accel.system.memory import Key, key_of
from accel.system.private_names import private
from accel.version import __version__

private("PIL.Image", "_decompression_bomb_check")

FORMAT = "2"
"""Of what is kept: headers, and what is said of an entry (``meta``)."""

VERSION = f"{entry.FORMAT} {FORMAT}"
"""Of a folder that is used."""

in_use = False
"""Whether a backend has a cache, or had one before another: where none has, nobody need ask for one."""

MARK = 8
"""Bytes of ``tag``."""

_caches: dict[str, Cache | None] = {}
_lock = fork.Lock()


class Known(NamedTuple):
    """What a cache has of a file, but for its stream index: a result, planes, or all pixels of one that has none.

    ``fills``: planes are to be put in now, or the pixels.
    ``said``: what ``packed`` gives. ``seconds``: what decoding all pixels took, of a file that the cache lacks.
    """

    cache: Cache
    result: Entry | None = None
    planes: Entry | None = None
    pixels: Entry | None = None
    fills: bool = False
    said: bytes = b""
    seconds: float = 0.0

    @property
    def has_exif(self) -> bool:
        return bool(_HEADER.unpack(self.said)[1] & _EXIF)


def prepare(options: Options) -> None:
    """Open the cache that the options name, unless this process has it already."""
    global in_use
    place = options.cache_size
    if place is None or options.cache is None:
        return
    with _lock:
        if options.cache not in _caches:
            _caches[options.cache] = Cache.open(place.folder or in_memory(), place.size, version=FORMAT)
        in_use = in_use or _caches[options.cache] is not None


def leave() -> None:
    """No backend is in force any more: have what was put in be written."""
    global in_use
    if in_use:
        in_use = False
        flush()


def of(options: Options) -> Cache | None:
    """The cache for images of a backend with these options; None: there is none, or not for inexact ones."""
    found = _caches.get(options.cache or "")
    return found if found is not None and options.exact and not ImageFile.LOAD_TRUNCATED_IMAGES else None


def flush(*, if_due: bool = False) -> None:
    """Have other processes find what was put in; ``if_due``: if it has waited for long, for the end of a batch."""
    for each in tuple(_caches.values()):
        if each is not None:
            each.flush(if_due=if_due)


# -- what was opened before ---------------------------------------------------------------------------------


def opened(
    path: Any, selection: Selection, status: os.stat_result | None = None, decoder: str = PILLOW
) -> Source | None:
    """A file that need not be read, as far as the cache goes; None for all others.

    Args:
        status: of a file that is open already, which the path may name no more; without, whether it may be read is
            looked up.
        decoder: whose pixels are wanted of a file that is no JPEG.
    """
    cache = of(selection.options)
    if cache is None:
        return None
    try:
        key = key_of(found := os.stat(path))
        if status is not None and not os.path.samestat(found, status):
            return None
    except (OSError, ValueError, TypeError):  # Pillow will say it
        return None
    file = None if key is None else cache.look(_place(key, decoder))
    known = None if file is None else believed(cache, file)
    if known is None or not (status is not None or os.access(path, os.R_OK)):
        return None
    return source(name_of(path), whole(path), key, known, selection)


def source(name: str, path: Any, key: Key | None, known: Known, selection: Selection) -> Source:
    """The source of a file of which the cache has something that is believed, and that may be read."""
    return Source(None, _header(known.said), name, selection, key=key, path=path, cached=known)


def name_of(path: Any) -> str:
    """What to call a file in messages."""
    return os.fsdecode(path) if isinstance(path, bytes) else str(path)


def of_content(data: bytes, key: Key, name: str, selection: Selection, decoder: str = PILLOW) -> Source | None:
    """A file's bytes, which are no JPEG, and which the cache knows, so that they need not be decoded; else None."""
    found = known(key, selection, Raw(0, 0, "", decoder))
    if found is None or not isinstance(header := _header(found.said), Raw):
        return None
    return Source(None, header, name, selection, key=key, path=Encoded(data), cached=found)


def decoded(source: Source, seconds: float) -> Source:
    """A source of pixels of a file that the cache lacks, with what it took to decode them."""
    cache = of(source.selection.options)
    if cache is not None:
        source.cached = Known(cache, seconds=seconds)
    return source


def known(key: Key | None, selection: Selection, header: Header | Raw | None = None) -> Known | None:
    """What the cache has of a file that somebody, or another process, looked up."""
    cache = of(selection.options)
    file = None if cache is None or key is None else cache.look(_place(key, getattr(header, "decoder", "")))
    return None if cache is None or file is None else believed(cache, file)


def place(source: Source) -> Key | bytes:
    """The key of what is kept of a source, which has one of its own.

    What another decoder gives of the same file is another one's.
    """
    assert source.key is not None
    return _place(source.key, getattr(source.header, "decoder", ""))


def _place(key: Key, decoder: str) -> Key | bytes:
    return key if decoder in ("", PILLOW) else variant(key, decoder.encode())


def whole(path: Any) -> Any:
    """A path that stays right when the process goes to another folder; ".." after a link is the system's to follow."""
    name = os.fspath(path)
    if os.path.isabs(name):
        return name
    return os.path.join(os.getcwdb() if isinstance(name, bytes) else os.getcwd(), name)


def believed(cache: Cache, file: File) -> Known | None:
    """What a cache has of a file, made by the same versions of everything; None: nothing."""
    mark = tag()
    if file.believed is None or file.believed[0] is not mark:
        file.believed = mark, _believed(cache, file, mark)
    known: Known | None = file.believed[1]
    return known


def _believed(cache: Cache, file: File, mark: bytes) -> Known | None:
    get = file.entries.get
    found = [entry if entry is not None and entry.meta.startswith(mark) else None for entry in map(get, _OF_PIXELS)]
    if found == _NOTHING or len(file.header) != _HEADER.size:
        return None
    result, planes, pixels = found
    return Known(cache, result, planes, pixels, said=file.header)


def variant(key: Key | bytes, of: bytes) -> bytes:
    """The key of what is kept of a file besides the one entry of its kind; ``of`` tells which it is."""
    return packed_key(key) + blake2b(of, digest_size=16).digest()


def allowed(header: Header | Raw) -> bool:
    """Whether Pillow would open a picture of this size; it warns as Pillow does."""
    try:
        Image._decompression_bomb_check((header.width, header.height))
    except Image.DecompressionBombError:
        return False
    return True


# -- what is said of a file ---------------------------------------------------------------------------------

_HEADER = struct.Struct("<BBIII")  # mode, flags, width, height, scan or decoder
SAID = np.dtype({
    "names": ["mode", "width", "height"],
    "formats": ["u1", "<u4", "<u4"],
    "offsets": [0, 2, 6],
    "itemsize": _HEADER.size,
})  # fmt: skip
"""What of it is of use for many at once."""
_MODES = ("", "L", "RGB")
RGB, _GREY = _MODES.index("RGB"), _MODES.index("L")
_OF_PIXELS = RESULT, PLANES, PIXELS  # as Known has them
_NOTHING = [None] * len(_OF_PIXELS)
_PROGRESSIVE, _EXIF, _RAW = 1, 2, 4


def packed(source: Source) -> bytes | None:
    """What is to be known of a file to open it without reading it; None: it must be read."""
    header = source.header
    if source.cached is not None and source.cached.said:
        return source.cached.said  # type: ignore[no-any-return]
    if isinstance(header, Raw):
        decoder = DECODERS.index(header.decoder) if header.decoder else 0
        return _HEADER.pack(_MODES.index(header.mode), _RAW, header.width, header.height, decoder)
    return packed_header(header, source.data)


def packed_header(header: Header, data: Data) -> bytes | None:
    """``packed`` of a JPEG file, whose bytes begin with ``data``."""
    if not (header.complete and header.ordinary) or header.pictures:
        return None
    return packed_jpeg(
        header.mode == "RGB", header.width, header.height, bytes(data[: header.scan]), header.progressive
    )


def packed_jpeg(colour: bool, width: int, height: int, head: bytes, progressive: bool = False) -> bytes:
    """``packed_header`` of a whole file of one picture, whose bytes up to its first scan are ``head``."""
    flags = _PROGRESSIVE * progressive | _EXIF * (b"Exif" in head)
    return _HEADER.pack(RGB if colour else _GREY, flags, width, height, len(head))


@lru_cache(maxsize=4096)
def _header(said: bytes) -> Header | Raw:
    mode, flags, width, height, scan = _HEADER.unpack(said)
    if flags & _RAW:
        return Raw(width, height, _MODES[mode], DECODERS[scan])
    return Header(width, height, _MODES[mode], bool(flags & _PROGRESSIVE), scan=scan)


@cache
def tag() -> bytes:
    """The versions of all that has a part in pixels, as what every entry's meta begins with."""
    parts = (
        *(FORMAT, __version__, platform.machine(), torch.__version__, torchvision.__version__, PIL.__version__),
        *(str(features.version(name)) for name in ("jpg", "libjpeg_turbo", "webp", "zlib", "libtiff", "avif")),
    )
    return blake2b(" ".join(parts).encode(), digest_size=MARK).digest()
