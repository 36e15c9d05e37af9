"""Files that a cache has entries of: looked up by their keys, one or many at once, so that they need not be opened.

Entries are used if they were made by the same versions of everything that affects pixels. For what they lack the file
itself is read (``accel.recipes.recipe.Source``).
"""

from __future__ import annotations

import os
import platform
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import PIL
import torch
import torchvision
from PIL import Image, ImageFile, features

from accel.cache import entry
from accel.cache.cache import Cache
from accel.cache.entry import PIXELS, PLANES, RESULT, Entry, File, packed_key
from accel.cache.folder import Unusable, in_memory
from accel.codec.files import fields as of_file
from accel.codec.files import reader
from accel.codec.foreign import DECODERS, PILLOW
from accel.codec.header import Header, Raw
from accel.codec.store import Keys
from accel.recipes.options import Options, Selection
from accel.recipes.recipe import Encoded, Source
from accel.recipes.sources import COLOURED, Files, name_of
from accel.system import counters, fork
from accel.system.memory import Key, key_of
from accel.system.private_names import private
from accel.system.version import __version__

private("PIL.Image", "_decompression_bomb_check")

VERSION = str(entry.FORMAT)
"""Version of a cache folder that can be used."""

in_use = False
"""Whether a backend in force, or one before it, has a cache; if not, look-ups can be skipped."""

MARK = 8
"""The length of ``tag()`` in bytes."""

_caches: dict[str, Cache | None] = {}
_lock = fork.Lock()


@dataclass(slots=True)
class FileEntries:
    """The entries that a cache has of a file, except its stream index: a result, planes, or (of no JPEG) all pixels.

    ``fills``: whether to put in its planes or pixels as it is decoded. ``header_bytes``: the result of ``packed``.
    ``raw``: whether the file is no JPEG, if the cache does not lack it; if it does, ``seconds``: the time that decoding
    all pixels took. ``last``: the answer of ``result_entry_of`` to the last question, all that changes.
    """

    cache: Cache
    result: Entry | None = None
    planes: Entry | None = None
    pixels: Entry | None = None
    fills: bool = False
    header_bytes: bytes = b""
    seconds: float = 0.0
    raw: bool = False
    last: tuple[Any, Any] = field(default=(None, None), init=False, compare=False)

    @property
    def header(self) -> Header | Raw:
        return _header(self.header_bytes)

    @property
    def has_exif(self) -> bool:
        return bool(_HEADER.unpack(self.header_bytes)[1] & _EXIF)


def prepare(options: Options) -> None:
    """Open the cache that the options name, unless this process has opened it already.

    Raises:
        ValueError: its folder cannot be used.
    """
    global in_use
    size = options.cache_size
    if size is None or options.cache is None:
        return
    with _lock:
        if _caches.get(options.cache) is None:
            try:
                _caches[options.cache] = Cache.open(size.folder or in_memory(), size.size, version=VERSION)
            except Unusable as error:
                raise ValueError(f"cache={options.cache!r} cannot be used: {error}") from None
        in_use = True


def enter(options: Options) -> None:
    """``prepare``; but if the folder cannot be used any more, as may happen in a process that was started later, that
    is counted, once, and there is no cache."""
    if options.cache in _caches and _caches[options.cache] is None:
        return
    try:
        prepare(options)
    except ValueError as error:
        _caches[str(options.cache)] = None
        counters.fallback(f"no cache: {error}")


def leave() -> None:
    """Flush the caches, as no backend is in force any more."""
    global in_use
    if in_use:
        in_use = False
        flush()


def of(options: Options) -> Cache | None:
    """The cache of a backend with these options; None if there is none, or results may be inexact."""
    found = _caches.get(options.cache or "")
    return found if found is not None and options.exact and not ImageFile.LOAD_TRUNCATED_IMAGES else None


def flush(*, if_due: bool = False) -> None:
    """Let other processes find what was put in; ``if_due``: only if it has waited for long (after each batch)."""
    for each in tuple(_caches.values()):
        if each is not None:
            each.flush(if_due=if_due)


# -- what was opened before ---------------------------------------------------------------------------------


def opened(
    path: Any, selection: Selection, status: os.stat_result | None = None, decoder: str = PILLOW
) -> Source | None:
    """The source of a file that need not be read as the cache has entries of it; None for all others.

    Args:
        status: of the file if it is open already, as the path may name another one now; without it, permission to
            read the file is checked.
        decoder: the one whose pixels are wanted, if the file is no JPEG.
    """
    if of(selection.options) is None:
        return None
    if status is None:
        key = reader.file_key(path)
    else:
        try:
            key = key_of(now := os.stat(path))
        except (OSError, ValueError, TypeError):  # Pillow will raise it
            return None
        if not os.path.samestat(now, status):
            return None
    found = known(key, selection, Raw(0, 0, "", decoder))
    if found is None:
        return None
    return Source(None, found.header, name_of(path), selection, key=key, path=whole(path), cached=found)


_OF_KEY = of_file.CHANGED + 1 - of_file.DEVICE
_MANY = 8  # look up before reading if one file in so many was found; reading takes several times as long
_finding: dict[Options, bool] = {}


def finds(selection: Selection) -> bool:
    """Whether to look files up before reading them, as enough of the last batch were found."""
    return _finding.get(selection.options, True)


class CachedFiles(NamedTuple):
    """Those files of many that the cache has entries of, which are not read, and their numbers, ascending."""

    numbers: Sequence[int]
    files: Files


def opened_together(paths: Sequence[Any], selection: Selection, read: Keys | None = None) -> CachedFiles:
    """``opened`` for many files, none of them open.

    ``read``: the keys of the files, if they were read already; keys that cannot be trusted are looked up.
    """
    cache = of(selection.options)
    keys = {} if cache is None else {number: key for number, key in enumerate(_names(paths, read)) if key is not None}
    found = {} if cache is None else _found(cache, keys)
    _finding[selection.options] = _MANY * len(found) >= len(paths)
    own = [paths[number] for number in found]
    rows = _rows([*found.values()], [keys[number] for number in found])
    names = [path if type(path) is str else name_of(path) for path in own]
    absolute = [path if type(path) is str and path.startswith("/") else whole(path) for path in own]
    files = Files(np.empty(0, np.uint8), np.zeros((len(found), 2), np.int64), rows, {}, names, selection)
    files.cached = dict(enumerate(zip(absolute, found.values(), strict=True)))
    return CachedFiles([*found], files)


def _found(cache: Cache, keys: Mapping[int, bytes]) -> dict[int, FileEntries]:
    """The valid entries of the files with these keys, by the files' numbers."""
    found, mark = dict[int, FileEntries](), tag()
    for number, file in zip(keys, cache.look_all([*keys.values()]), strict=True):
        if file is not None:
            derived = file.derived
            known = derived[1] if derived is not None and derived[0] is mark else valid_entries(cache, file)
            if known is not None:
                found[number] = known
    return found


def _rows(found: Sequence[FileEntries], keys: Sequence[bytes]) -> npt.NDArray[np.int64]:
    """``Files.known`` of files that are not read: int64 [files, FIELDS]."""
    rows = np.zeros((len(found), of_file.FIELDS), np.int64)
    headers = np.frombuffer(b"".join([known.header_bytes for known in found]), _FIELDS)
    rows[:, of_file.STATE] = np.where(headers["flags"] & (_PROGRESSIVE | _RAW), of_file.OTHER, of_file.PLAIN)
    rows[:, of_file.DEVICE : of_file.CHANGED + 1] = np.frombuffer(b"".join(keys), np.int64).reshape(-1, _OF_KEY)
    rows[:, of_file.COMPONENTS] = np.where(headers["mode"] == _RGB, COLOURED, 1)
    rows[:, of_file.HEIGHT], rows[:, of_file.WIDTH] = headers["height"], headers["width"]
    return rows


def _names(paths: Sequence[Any], read: Keys | None = None) -> list[bytes | None]:
    """The packed keys of files; None for one that is not there, not readable, or whose key cannot be trusted.

    ``read``: see ``opened_together``.
    """
    names: list[bytes | None] = [None] * len(paths) if read is None else read.packed()
    others = [number for number, name in enumerate(names) if name is None]
    keys = reader.keys([paths[number] for number in others])
    if keys is not None:
        looked = keys.packed()
    else:
        looked = [None if (key := reader.file_key(paths[number])) is None else packed_key(key) for number in others]
    for number, name in zip(others, looked, strict=True):
        names[number] = name
    return names


def of_content(data: bytes, key: Key, name: str, selection: Selection, decoder: str = PILLOW) -> Source | None:
    """The source of a file's bytes that are no JPEG, if the cache has entries of them; else None."""
    found = known(key, selection, Raw(0, 0, "", decoder))
    if found is None or not isinstance(header := found.header, Raw):
        return None
    return Source(None, header, name, selection, key=key, path=Encoded(data), cached=found)


def decoded(source: Source, seconds: float) -> Source:
    """Record in a source of pixels, of a file that the cache lacks, the seconds that decoding them took."""
    cache = of(source.selection.options)
    if cache is not None:
        source.cached = FileEntries(cache, seconds=seconds)
    return source


def known(key: Key | None, selection: Selection, header: Header | Raw | None = None) -> FileEntries | None:
    """The usable entries that the cache has of the file with this key; None if there are none."""
    cache = of(selection.options)
    file = None if cache is None or key is None else cache.look(place(key, header))
    return None if cache is None or file is None else valid_entries(cache, file)


def place(key: Key, header: Header | Raw | None) -> Key | bytes:
    """The key of the entries of a file: the pixels that another decoder than the usual one makes have their own."""
    decoder = getattr(header, "decoder", "")
    return key if decoder in ("", PILLOW) else variant(key, decoder.encode())


def whole(path: Any) -> Any:
    """The absolute form of a path, in which ".." is left to the system, as it may follow a link."""
    name = os.fspath(path)
    if os.path.isabs(name):
        return name
    return os.path.join(os.getcwdb() if isinstance(name, bytes) else os.getcwd(), name)


def valid_entries(cache: Cache, file: File) -> FileEntries | None:
    """The entries of a file that were made by the same versions of everything; None if there are none."""
    mark = tag()
    if file.derived is None or file.derived[0] is not mark:
        each = map(file.entries.get, (RESULT, PLANES, PIXELS))
        found = [entry if entry is not None and entry.meta.startswith(mark) else None for entry in each]
        file.derived = mark, None
        if any(found) and len(file.header) == _HEADER.size:
            result, planes, pixels = found
            raw = bool(_HEADER.unpack(file.header)[1] & _RAW)
            file.derived = mark, FileEntries(cache, result, planes, pixels, header_bytes=file.header, raw=raw)
    known: FileEntries | None = file.derived[1]
    return known


def variant(key: Key | bytes, of: bytes) -> bytes:
    """The key of a further entry of a file, of a kind that it has one of already; ``of`` identifies it."""
    return packed_key(key) + blake2b(of, digest_size=16).digest()


def allowed(header: Header | Raw) -> bool:
    """Whether Pillow would open a picture of this size; warns as Pillow does."""
    try:
        Image._decompression_bomb_check((header.width, header.height))
    except Image.DecompressionBombError:
        return False
    return True


# -- headers of files ---------------------------------------------------------------------------------------

_HEADER = struct.Struct("<BBIII")  # mode, flags, width, height, scan or decoder
_FIELDS = np.dtype([("mode", "u1"), ("flags", "u1"), ("width", "<u4"), ("height", "<u4"), ("scan", "<u4")])
"""``_HEADER`` as read for many files at once."""
_MODES = ("", "L", "RGB")
_RGB, _GREY = _MODES.index("RGB"), _MODES.index("L")
_PROGRESSIVE, _EXIF, _RAW = 1, 2, 4


def packed(source: Source) -> bytes | None:
    """Pack the header that allows a file to be opened without reading it; None if it must be read."""
    header = source.header
    if source.cached is not None and source.cached.header_bytes:
        return source.cached.header_bytes  # type: ignore[no-any-return]
    if isinstance(header, Raw):
        decoder = DECODERS.index(header.decoder) if header.decoder else 0
        return _HEADER.pack(_MODES.index(header.mode), _RAW, header.width, header.height, decoder)
    if not (header.complete and header.ordinary) or header.pictures:
        return None
    head = bytes(source.data[: header.scan])
    return _packed_jpeg(header.mode == "RGB", header.width, header.height, head, header.progressive)


def _packed_jpeg(colour: bool, width: int, height: int, head: bytes, progressive: bool = False) -> bytes:
    """``packed`` for a complete JPEG file of one picture; ``head``: its bytes before the first scan."""
    flags = _PROGRESSIVE * progressive | _EXIF * (b"Exif" in head)
    return _HEADER.pack(_RGB if colour else _GREY, flags, width, height, len(head))


def packed_together(files: Files, numbers: Sequence[int]) -> list[bytes | None]:
    """``packed`` for some of many files that were read, without making sources of plain ones."""
    content, starts, headers = files.content.data, files.places[:, 0].tolist(), list[bytes | None]()
    rows = files.known[:, _FRAME].tolist()
    for number in numbers:
        scan, components, height, width = rows[number]
        if number in files.headers:
            headers.append(packed(files[number]))
            continue
        head = bytes(content[starts[number] : starts[number] + scan])
        headers.append(_packed_jpeg(components == COLOURED, width, height, head))
    return headers


_FRAME = slice(of_file.SCAN, of_file.WIDTH + 1)
"""The fields of ``Files.known`` that describe the picture: scan, components, height and width."""


@lru_cache(maxsize=4096)
def _header(packed: bytes) -> Header | Raw:
    mode, flags, width, height, scan = _HEADER.unpack(packed)
    if flags & _RAW:
        return Raw(width, height, _MODES[mode], DECODERS[scan])
    return Header(width, height, _MODES[mode], bool(flags & _PROGRESSIVE), scan=scan)


@cache
def tag() -> bytes:
    """A digest of the versions of everything that affects pixels, with which every entry's meta begins."""
    parts = [VERSION, __version__, platform.machine(), torch.__version__, torchvision.__version__, PIL.__version__]
    parts += [str(features.version(name)) for name in ("jpg", "libjpeg_turbo", "webp", "zlib", "libtiff", "avif")]
    return blake2b(" ".join(parts).encode(), digest_size=MARK).digest()
