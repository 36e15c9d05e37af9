"""``PIL.Image.open``: lazy images for the JPEG files that accel claims, and black ones for damaged files.

Under ``on_error="replace"`` a black picture takes the place of a damaged file: of its size, or of 256 x 256 if it
cannot be opened as a picture or Pillow refuses it for its size. A file that is missing, or may not be read, is not
damaged; neither is one whose file object, given by the caller, raises errors of its own.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import sys
from collections.abc import Callable
from functools import partial
from io import BytesIO
from types import TracebackType
from typing import IO, Any

from PIL import Image, ImageFile, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile

from accel.codec.files import batch_memory, packs
from accel.codec.header import Header, claim
from accel.hooks import claimed_files, patch
from accel.hooks.patch import Body, Function, Item
from accel.lazy import pillow_file
from accel.lazy.image import LazyImage
from accel.lazy.jpeg_file import LazyJpegFile, Unread, opened
from accel.processes import switch
from accel.recipes.options import Selection
from accel.recipes.recipe import Source
from accel.runtime.memo import cached
from accel.system import counters, fork
from accel.system.caller import frame
from accel.system.content import key_of_content
from accel.system.imports import LazyModule
from accel.system.memory import Key
from accel.system.replaced import replaced

_mpo = LazyModule("accel.lazy.mpo_file")


UNKNOWN_SIZE = 256
"""Height and width of the black picture for a file whose size is not known."""

_OPENED = "_accel_opened"  # attribute of an image that is replaced if damaged: its name in messages
_NOT_OF_THE_FILE = (
    MemoryError,
    ImportError,
    Warning,
    ConnectionError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
    TimeoutError,
)


def replaces() -> bool:
    """Whether damaged files that are opened now are replaced."""
    selection = switch.active()
    return selection is not None and selection.options.on_error == "replace"


# -- JPEG files ---------------------------------------------------------------------------------------------


def _jpeg(registered: tuple[Function, Any]) -> tuple[Function, Any]:
    """Pillow's JPEG opener, which opens files that accel claims lazily and leaves others to the original."""
    original, accept = registered

    def open_jpeg(file: IO[bytes], filename: str | bytes = "") -> Any:
        selection = switch.active()
        image = None if selection is None else _lazy(original, selection, file, filename)
        return original(file, filename) if image is None else image

    return open_jpeg, accept


def _lazy(original: Function, selection: Selection, file: IO[bytes], filename: str | bytes) -> Any:
    """The lazy image of an open JPEG file; None, with the file at its beginning, if it is left to Pillow."""
    if cached.in_use and (known := _known_file(file, selection)) is not None:
        return _of_file(file, LazyJpegFile.open(known, filename))
    source_of = partial(_source, _name(filename or file), selection)
    data, key = opened(file)
    if isinstance(data, Unread):
        return LazyJpegFile.open_unread(data, filename, source_of)
    in_memory = key is None and cached.in_use and cached.of(selection.options) is not None
    source = source_of(data, key_of_content(data) if in_memory else key)
    if source is None:
        file.seek(0)
        return None
    if in_memory:
        source.cached = cached.known(source.key, selection)
    several = isinstance(source.header, Header) and source.header.pictures
    by_pillow = original(BytesIO(data), filename) if several else None  # Pillow decides what it is
    if by_pillow is None or type(by_pillow) is JpegImageFile:
        image = LazyJpegFile.open(source, filename)
        image._file = by_pillow
    else:
        image = _mpo.LazyMpoFile.open(source, filename, by_pillow)
    return _of_file(file, image)


def _of_file(file: IO[bytes], image: Any) -> Any:
    image.__dict__["_open_file"] = file
    return image


def _known_file(file: Any, selection: Selection) -> Source | None:
    """The source of an open file if the cache has enough of it that it need not be read, else None."""
    path = getattr(file, "name", None)
    if type(file) is not io.BufferedReader or not isinstance(path, (str, bytes)):
        return None
    source = cached.opened(path, selection, os.fstat(file.fileno()))
    return source if source is not None and isinstance(source.header, Header) else None


def _known_path(path: Any) -> Any:
    """The image of a file if the cache has enough of it that it need not be opened, else None."""
    selection = switch.active()
    source = None if selection is None else cached.opened(path, selection)
    if source is None or not isinstance(source.header, Header) or not cached.allowed(source.header):
        return None
    return LazyJpegFile.open(source, os.fspath(path))


def _in_slot(path: str) -> Any:
    """The image of a file that is read into the memory of its batch; None if Pillow must open it."""
    selection = switch.active()
    if selection is None or builtins.open is not io.open or batch_memory.current(selection) is None:
        return None
    source = claimed_files.read(path, selection, claimed_files.by_pillow)
    return None if source is None else LazyJpegFile.open(source, path)


def _source(
    name: str, selection: Selection, data: bytes, key: Key | None, expected: Header | None = None
) -> Source | None:
    """The source of a file; None if it is left to Pillow, or its header is not the one that was read first
    (``expected``)."""
    header = claim(data)
    same = expected is None or (header is not None and header[:4] == expected[:4] and not header.pictures)
    if header is None or not same or not claimed_files.claimed(header, selection):
        counters.fallback("Pillow decoded a JPEG file that accel cannot decode (CMYK, cut short, ...)", name)
        return None
    return Source(data, header, name, selection, key=key)


# -- all files ----------------------------------------------------------------------------------------------


def by_path(original: Function, path: Any, of_member: Function) -> Any:
    """``original(path)``, which opens a file; ``of_member(path)`` if it is in a pack."""
    if not (packs.known and packs.content_of(path)):
        try:
            return original(path)
        except (FileNotFoundError, NotADirectoryError):
            if not packs.find(path):
                raise
    return of_member(path)


def _open(original: Function, fp: Any, mode: Any = "r", formats: Any = None) -> Any:
    """``PIL.Image.open``."""
    if replaces() and str(frame(2).f_globals.get("__name__")).startswith("PIL."):  # past this function and Pillow's
        return original(fp, mode, formats)  # its Parser tries to open incomplete data
    if not _is_path(fp) or switch.active() is None:
        return _open_file(original, fp, mode, formats)
    return by_path(
        lambda path: _open_file(original, path, mode, formats), fp, partial(_member, original, mode, formats)
    )


def _member(original: Function, mode: Any, formats: Any, path: Any) -> Any:
    """The image of a file of a pack, as if it had been opened by its path."""
    lazily = mode == "r" and formats is None
    source = claimed_files.read(path, switch.current(), claimed_files.by_pillow) if lazily else None
    if source is not None:
        return LazyJpegFile.open(source, os.fspath(path))
    image = _open_file(original, packs.opened(path), mode, formats)
    image.filename = os.fspath(path)
    return image


def _open_file(original: Function, fp: Any, mode: Any, formats: Any) -> Any:
    if not cached.in_use:
        if mode == "r" and formats is None and type(fp) is str and (image := _in_slot(fp)) is not None:
            return image
        return _open_or_replace(original, fp, mode, formats)
    if mode == "r" and formats is None and _is_path(fp):
        image = _known_path(fp)
        if image is not None:
            return image
    image = _open_or_replace(original, fp, mode, formats)
    if isinstance(image, ImageFile.ImageFile) and not isinstance(image, LazyImage) and pillow_file.note(image, fp):
        _watch(type(image), "convert", pillow_file.converting)
    return image


def _open_or_replace(original: Function, fp: Any, mode: Any, formats: Any) -> Any:
    if not replaces():
        return original(fp, mode, formats)
    name = _name(fp)
    try:
        image = original(fp, mode, formats)
    except Exception as error:
        if not isinstance(error, UnidentifiedImageError) and not _is_damage(error, original, False):
            raise
        replaced(name, _text(error))
        return _unsized(fp)
    if isinstance(image, ImageFile.ImageFile) and not isinstance(image, LazyImage):
        _watch(type(image), "load", _load)
        image.__dict__[_OPENED] = name
    return image


def _unsized(fp: Any) -> Image.Image:
    image = Image.new("RGB", (UNKNOWN_SIZE, UNKNOWN_SIZE))
    image.filename = os.fspath(fp) if _is_path(fp) else ""  # type: ignore[attr-defined]
    return image


def _name(fp: Any) -> str:
    """The name of a file in messages."""
    return os.fsdecode(fp) if _is_path(fp) else str(getattr(fp, "name", "") or "<bytes>")


def _is_path(fp: Any) -> bool:
    return isinstance(fp, (str, bytes, os.PathLike))


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__


def _is_damage(error: Exception, function: Any, itself: bool) -> bool:
    """Whether a function of Pillow's failed because of a file's content.

    Args:
        itself: the answer if the function itself raised the error, and not code that it called.
    """
    if isinstance(error, _NOT_OF_THE_FILE) or (isinstance(error, OSError) and error.errno is not None):
        return False
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code is not function.__code__:
        traceback = traceback.tb_next
    inside = traceback.tb_next if traceback is not None else None
    if inside is None:
        return itself
    # Pillow's code, that of other openers that are registered there, and the standard library
    readers = {
        "PIL",
        "accel",
        *sys.stdlib_module_names,
        *(_package(opener.__module__) for opener, _ in Image.OPEN.values()),
    }
    while inside is not None:
        if _package(str(inside.tb_frame.f_globals.get("__name__"))) not in readers:
            return False
        inside = inside.tb_next
    return True


def _package(module: str) -> str:
    return module.partition(".")[0]


# -- images that were opened and cannot be loaded -----------------------------------------------------------

_watched: dict[tuple[type, str], patch.Undo] = {}
_lock = fork.Lock()


def _watch(kind: type, name: str, replacement: Callable[[Function], Function]) -> None:
    """Replace a method of a class of Pillow's images, in the classes that define it, unless that has been done."""
    owners = [cls for cls in kind.__mro__ if name in vars(cls) and issubclass(cls, ImageFile.ImageFile)]
    for cls in owners or [kind]:
        if (cls, name) not in _watched:
            with _lock:
                if (cls, name) not in _watched:
                    _watched[cls, name] = patch.attribute(cls, name, replacement(getattr(cls, name)))


def unwatch() -> None:
    """Put back the methods that ``_watch`` has replaced."""
    while _watched:
        _watched.popitem()[1]()


def _load(original: Function) -> Function:
    """``load`` of a class of Pillow's images, which makes a damaged picture black."""

    @functools.wraps(original)
    def load(self: Any, *args: Any, **kwargs: Any) -> Any:
        name = self.__dict__.get(_OPENED)
        if name is None or getattr(self.__dict__.get("fp"), "closed", True):  # a closed file is the user's error
            return original(self, *args, **kwargs)
        try:
            return original(self, *args, **kwargs)
        except Exception as error:
            if not _is_damage(error, original, True):
                raise
            replaced(name, _text(error))
            return _blacken(self)

    return load


def _blacken(image: Any) -> Any:
    """Make an image whose loading failed black and loaded."""
    black = Image.new("RGB", image.size)
    try:
        black = black.convert(image.mode)
    except ValueError:  # there is no conversion to the mode, in which all zeros are black
        black = Image.new(image.mode, image.size)
    if image._exclusive_fp and image.fp is not None:
        image.fp.close()
    image.fp, image.tile, image.readonly = None, [], 0
    image.__dict__.pop(pillow_file.NOTED, None)
    image.im, image.palette = black.im, black.palette
    return Image.Image.load(image)


PATCHES = (
    Body("PIL.Image.open", _open),  # if damaged files are replaced, also ``load`` of the images (``_watch``)
    Item("PIL.Image.OPEN", _jpeg, keys=("JPEG",)),
)
