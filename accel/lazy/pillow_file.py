"""Files that Pillow opened itself and has not loaded: lazy images of those that a cache has or may keep.

The cache keeps the pixels as they are, or converted by ``convert("RGB")`` if their mode is neither "RGB" nor "L". For
all other uses, the image stays Pillow's.
"""

from __future__ import annotations

import functools
import io
import os
import weakref
from collections.abc import Callable
from io import BytesIO
from time import thread_time
from typing import Any, NamedTuple

from PIL import Image, ImageFile

from accel.codec import foreign
from accel.codec.files import reader
from accel.codec.files.reader import file_buffers
from accel.lazy.image import LazyPlainImage
from accel.processes import switch
from accel.recipes.options import Selection
from accel.recipes.recipe import Recipe, Source
from accel.runtime.memo import cached
from accel.system.content import key_of_content
from accel.system.memory import Key, key_of

NOTED = "_accel_file"
"""The attribute of an image with its ``_Noted``."""


class _Noted(NamedTuple):
    """The state of an image when it was opened; ``file``: the file object, on a disk or in memory, that it reads."""

    file: Any
    key: Key
    info: dict[Any, Any]
    tile: list[Any]
    fields: tuple[Any, ...]


def note(image: Any, file: Any) -> bool:
    """Note that Pillow has just opened an image, from a path or a file object; False: the cache cannot keep it."""
    if image.format not in foreign.FORMATS or "transparency" in image.info:
        return False
    file = image.fp if isinstance(file, (str, bytes, os.PathLike)) else file
    key = _key(file)
    if key is None:
        return False
    image.__dict__[NOTED] = _Noted(file, key, dict(image.info), list(image.tile), _fields(image))
    return True


def _fields(image: Any) -> tuple[Any, ...]:
    """What else the picture that Pillow loads depends on: the user may have set another palette, for instance."""
    palette = image.palette and (image.palette.mode, image.palette.rawmode, bytes(image.palette.palette))
    return image.mode, image.size, image.fp, image.decoderconfig, palette


def _key(file: Any) -> Key | None:
    """The key of a file object, on a disk or in memory; None: it has none."""
    if type(file) is BytesIO:
        return None if file.closed else key_of_content(file.getvalue())
    named = type(file) is io.BufferedReader and isinstance(file.name, (str, bytes))
    return key_of(os.fstat(file.fileno())) if named else None


def lazy(image: Any) -> LazyPlainImage | None:
    """A lazy image of a file that Pillow opened; None for other images, and without a cache.

    Raises:
        Exception: what Pillow raises when it loads the file.
    """
    noted: _Noted | None = image.__dict__.get(NOTED)
    selection = switch.active()
    if noted is None or selection is None or cached.of(selection.options) is None or not _is_new(image, noted):
        return None
    name, file, key = str(getattr(image, "filename", "")) or "<bytes>", noted.file, noted.key
    if type(file) is BytesIO:
        data = file.getvalue()
        if key_of_content(data) != key:  # it was written to
            return None
        source = cached.of_content(data, key, name, selection)
    else:
        source = cached.opened(file.name, selection, os.fstat(file.fileno()))
    if source is not None:
        header = source.header
        same = header.mode == (image.mode if image.mode in ("RGB", "L") else "RGB")
        if not same or image.size != (header.width, header.height) or source.key != key:
            return None
        if getattr(image, "_exclusive_fp", False):
            weakref.finalize(image, file.close).atexit = False
        return LazyPlainImage.make(Recipe(source), header.mode, image.size)
    begin = thread_time()
    made = foreign.of_image(image)
    if made is None or NOTED not in image.__dict__:  # the latter: a black picture in place of a damaged file
        return None
    raw, pixels, info = made
    source = cached.decoded(Source(pixels, raw, name, selection, key=key), thread_time() - begin)
    return LazyPlainImage.make(Recipe(source), raw.mode, (raw.width, raw.height), info)


def converting(original: Callable[..., Any]) -> Callable[..., Any]:
    """``convert`` of a class of Pillow's images, lazy for a file that the cache has or may keep."""

    @functools.wraps(original)
    def convert(self: Any, mode: Any = None, *args: Any, **kwargs: Any) -> Any:
        of_file = NOTED in self.__dict__ and not args and not kwargs
        if of_file and (mode == "RGB" or (mode == "L" and self.mode in ("RGB", "L"))):
            image = lazy(self)
            if image is not None:
                return image.convert(mode)
        return original(self, mode, *args, **kwargs)

    return convert


def _is_new(image: ImageFile.ImageFile, noted: _Noted) -> bool:
    """Whether an image is as it was opened: not loaded, and not set to another picture or size."""
    new: bool = getattr(image, "_im", None) is None and image.tile == noted.tile and image.info == noted.info
    return new and _fields(image) == noted.fields and not noted.file.closed and image.tell() == 0


def read(path: Any, selection: Selection) -> Source | None:
    """Read and decode a file of ``foreign.FORMATS`` to a source that the cache may keep; None for other files.

    Never raises: reading the file in the usual way will raise the error.
    """
    if cached.of(selection.options) is None:
        return None
    file = reader.read(path)
    if file is None:
        return None
    buffer, size, key, _ = file
    begin = thread_time()
    try:
        image = Image.open(BytesIO(memoryview(buffer)[:size])) if key is not None else None
        if image is None or image.format not in foreign.FORMATS or "transparency" in image.info:
            return None
        made = foreign.of_image(image)
    except Exception:
        return None
    finally:
        file_buffers.give_back(buffer)
    if made is None:
        return None
    return cached.decoded(Source(made[1], made[0], str(path), selection, key=key), thread_time() - begin)
