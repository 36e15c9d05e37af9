"""Files of which a cache has something: looked up by their keys when they are opened, and not opened then.

What is found is believed if it was made by the same versions of everything that has a part in pixels. What it lacks,
the file itself has, which is read then (``accel.recipe.Source``).
"""

from __future__ import annotations

import os
import platform
import struct
from functools import cache
from hashlib import blake2b
from typing import Any, NamedTuple

import PIL
import torch
import torchvision
from PIL import Image, ImageFile, features

from accel.cache.cache import Cache
from accel.cache.entry import PLANES, RESULT, Entry, File, packed_key
from accel.cache.folder import in_memory
from accel.codec.header import Header, Raw
from accel.options import Options, Selection
from accel.recipe import Source
from accel.system import fork
from accel.system.memory import Key, key_of
from accel.system.private_names import private
from accel.version import __version__

private("PIL.Image", "_decompression_bomb_check")

FORMAT = "1"
"""Of what is kept: headers, and what is said of an entry (``meta``)."""

in_use = False
"""Whether a backend has a cache, or had one before another: where none has, nobody need ask for one."""

MARK = 8
"""Bytes of ``tag``."""

_caches: dict[str, Cache | None] = {}
_lock = fork.Lock()


class Known(NamedTuple):
    """What a cache has of a file, but for its stream index: a result, and planes; ``said``: what ``packed`` gives."""

    cache: Cache
    result: Entry | None = None
    planes: Entry | None = None
    fills: bool = False  # planes are to be put in, at the pace of accel.runtime.pace
    now: bool = False  # at once
    said: bytes = b""

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


def opened(path: Any, selection: Selection, status: os.stat_result | None = None) -> Source | None:
    """A file that need not be read, as far as the cache goes; None for all others.

    ``status``: of a file that is open already, which the path may name no more; without, whether it may be read is
    looked up.
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
    file = None if key is None else cache.look(key)
    if file is None or not (status or os.access(path, os.R_OK)):
        return None
    known = _known(cache, file)
    if known is None:
        return None
    mode, flags, width, height, scan = _HEADER.unpack(known.said)
    header = Header(width, height, _MODES[mode], bool(flags & _PROGRESSIVE), scan=scan)
    name = os.fsdecode(path) if isinstance(path, bytes) else str(path)
    return Source(None, header, name, selection, key=key, path=_whole(path), cached=known)


def known(key: Key | None, selection: Selection) -> Known | None:
    """What the cache has of a file that another process looked up."""
    cache = of(selection.options)
    file = None if cache is None or key is None else cache.look(key)
    return None if cache is None or file is None else _known(cache, file)


def _whole(path: Any) -> Any:
    """A path that stays right when the process goes to another folder; ".." after a link is the system's to follow."""
    name = os.fspath(path)
    if os.path.isabs(name):
        return name
    return os.path.join(os.getcwdb() if isinstance(name, bytes) else os.getcwd(), name)


def _known(cache: Cache, file: File) -> Known | None:
    mark, result, planes = tag(), file.entries.get(RESULT), file.entries.get(PLANES)
    if result is not None and not result.meta.startswith(mark):
        result = None
    if planes is not None and not planes.meta.startswith(mark):
        planes = None
    if (result is None and planes is None) or len(file.header) != _HEADER.size:
        return None
    return Known(cache, result, planes, said=file.header)


def variant(key: Key, of: bytes) -> bytes:
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

_HEADER = struct.Struct("<BBIII")  # mode, flags, width, height, scan
_MODES = ("", "L", "RGB")
_PROGRESSIVE, _EXIF, _RAW = 1, 2, 4


def packed(source: Source) -> bytes | None:
    """What is to be known of a file to open it without reading it; None: it must be read."""
    header = source.header
    if source.cached is not None and source.cached.said:
        return source.cached.said  # type: ignore[no-any-return]
    if isinstance(header, Raw):
        return _HEADER.pack(_MODES.index(header.mode), _RAW, header.width, header.height, 0)
    if not (header.complete and header.ordinary) or header.pictures:
        return None
    exif = b"Exif" in bytes(source.data[: header.scan])
    flags = _PROGRESSIVE * header.progressive | _EXIF * exif
    return _HEADER.pack(_MODES.index(header.mode), flags, header.width, header.height, header.scan)


@cache
def tag() -> bytes:
    """The versions of all that has a part in pixels, as what every entry's meta begins with."""
    parts = (
        *(FORMAT, __version__, platform.machine(), torch.__version__, torchvision.__version__, PIL.__version__),
        *(str(features.version(name)) for name in ("jpg", "libjpeg_turbo", "webp", "zlib")),
    )
    return blake2b(" ".join(parts).encode(), digest_size=MARK).digest()
