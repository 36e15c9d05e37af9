"""The lazy image that ``Image.open`` returns for a JPEG file: a JpegImageFile whose pixels are not computed yet.

For a large file only the header is read at first, and the rest when it is needed. As with Pillow's images, the file
stays open until then. It is read at explicit offsets (pread), so that forks and threads do not share a position.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from multiprocessing.reduction import ForkingPickler
from typing import IO, Any, ClassVar

from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile, jpeg_factory

from accel.codec.header import Header, claim
from accel.lazy.image import LazyImage
from accel.lazy.image_base import Field, StandsFor, send
from accel.recipes.recipe import Recipe, Source
from accel.system import fork
from accel.system.memory import Key, key_of


@dataclass(eq=False)
class Unread:
    """A file that is not read yet, but for its beginning, ``head``; ``header``: the header by that."""

    file: Any
    head: bytes
    header: Header
    exclusive: bool = False  # whether it was opened for this image, and is closed with it
    lock: fork.Lock = field(default_factory=fork.Lock)

    def read(self) -> tuple[bytes, Key | None]:
        """Read the whole file; return its content and its key (None: it cannot be trusted).

        Raises:
            ValueError: the file was closed meanwhile, as in Pillow.
        """
        if self.file.closed:
            raise ValueError("Operation on closed image")
        descriptor = self.file.fileno()
        parts: list[bytes] = []
        size, key = 0, key_of(os.fstat(descriptor))
        while part := os.pread(descriptor, max(os.fstat(descriptor).st_size - size, 1), size):
            parts.append(part)
            size += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts), key

    def close(self) -> None:
        """Close the file, if it was opened for this image."""
        if self.exclusive:
            self.file.close()


class FileField(Field):
    """A field of Pillow's image of the file, by which it is decoded."""

    def __get__(self, image: LazyJpegFile | None, owner: type) -> Any:
        if image is None:
            return self
        fields = (_loaded() if image._loaded else {}) | image.__dict__
        if self.name not in fields or (image._copied and fields[self.name] is None):
            return image.__getattr__(self.name)
        return fields[self.name]


def _loaded() -> dict[str, Any]:
    """The fields of a file that Pillow has loaded."""
    return {"tile": [], "fp": None}


class LazyJpegFile(LazyImage, JpegImageFile, metaclass=StandsFor):
    """A ``JpegImageFile`` whose pixels are computed when they are first used.

    Its file has been read whole; a large one is read when more than its header is needed. Pillow's other attributes
    (quantization tables, layers, EXIF, ...) are read by Pillow when they are used.
    """

    becomes: ClassVar[type[JpegImageFile]] = JpegImageFile

    _source_of: Callable[[bytes, Key | None, Header], Source | None]
    filename: Any = ""
    tile, fp, decoderconfig, decodermaxblock = FileField(), FileField(), FileField(), FileField()
    _file: JpegImageFile | None = None
    _unread: Unread | None = None  # while it is set, there is no recipe

    @classmethod
    def open(cls, source: Source, filename: str | bytes = "") -> LazyJpegFile:
        """The image that ``Image.open`` returns; ``filename``: that of Pillow's image."""
        header = source.header
        image = cls.make(Recipe(source), header.mode, (header.width, header.height))
        image.filename = filename
        return image

    @classmethod
    def open_unread(
        cls, unread: Unread, filename: str | bytes, source_of: Callable[[bytes, Key | None, Header], Source | None]
    ) -> LazyJpegFile:
        """The image of a file that is not read yet; ``source_of`` returns None if the file must be left to Pillow."""
        header = unread.header
        image = cls.__new__(cls)
        image.__dict__.update(_mode=header.mode, _size=(header.width, header.height), filename=filename)
        image._unread, image._source_of = unread, source_of
        return image

    def _read(self) -> None:
        unread = self._unread
        if unread is None:
            return
        with unread.lock:
            if self._unread is None:  # another thread was faster
                return
            data, key = unread.read()
            source = self._source_of(data, key, unread.header)
            self._file = jpeg_factory(BytesIO(data), self.filename) if source is None else None
            self._recipe = None if source is None else Recipe(source)
            self._unread = None
            unread.close()

    def _pixels(self) -> Any:
        if self._recipe is None:  # handed over to Pillow by draft()
            file = self._file_of_pillow()
            file.load()
            return file.im
        return super()._pixels()

    def draft(self, mode: str | None, size: tuple[int, int] | None) -> Any:
        """Let Pillow configure its decoder, as it does for thumbnails; from then on Pillow decodes the image."""
        if self._loaded:
            return None
        if self._im is None:
            self._read()
        file = self._file_of_pillow()
        drafted = file.draft(mode, size)
        if drafted is not None:
            self._hand_over(file)
        return drafted

    def _hand_over(self, file: JpegImageFile) -> None:
        """Have Pillow decode the image, by its own image of the file."""
        self.__dict__.update(_recipe=None, _mode=file.mode, _size=file.size, palette=file.palette)

    def _set_field(self, name: str, value: Any) -> None:
        """Set a field of Pillow's; an image that Pillow would not have loaded is decoded by Pillow from then on."""
        if self._im is None and not self._loaded and (self._recipe is not None or self._file is not None):
            file = self._file_of_pillow()
            setattr(file, name, value)
            self._hand_over(file)
        else:
            super()._set_field(name, value)

    @property
    def _exif(self) -> Any:
        """The EXIF data, if they were read; Pillow reads those of some files as it opens them."""
        if "_exif" not in self.__dict__:
            self._exif = None if self._copied else self._file_of_pillow()._exif
        return self.__dict__["_exif"]

    @_exif.setter
    def _exif(self, exif: Any) -> None:
        self.__dict__["_exif"] = exif

    def verify(self) -> None:
        (self._file_of_pillow() if self._recipe is None else self._opened_by_pillow()).verify()

    def get_child_images(self) -> list[ImageFile]:
        self._read()
        return self._file_of_pillow().get_child_images()

    def close(self) -> None:
        if self._unread is not None:
            self._unread.file.close()
        super().close()

    def __exit__(self, *args: object) -> None:
        if self._unread is not None:
            self._unread.close()

    @property
    def _exclusive_fp(self) -> bool:
        return self._unread is not None and self._unread.exclusive

    @_exclusive_fp.setter
    def _exclusive_fp(self, exclusive: bool) -> None:
        """Note whether ``Image.open`` opened the file itself; it is then closed when it has been read whole."""
        if self._unread is not None:
            self._unread.exclusive = exclusive
        opened = self.__dict__.pop("_open_file", None)
        if exclusive and opened is not None:
            opened.close()

    def _opened_by_pillow(self) -> JpegImageFile:
        data = self._recipe.source.data if self._unread is None else self._unread.head  # type: ignore[union-attr]
        return self.becomes(BytesIO(data), self.filename)

    def _file_of_pillow(self, recipe: Recipe | None = None) -> JpegImageFile:
        if self._file is None:
            self._file = self._opened_by_pillow()
        return self._file

    def _attributes(self) -> dict[str, Any]:
        self._read()
        attributes = vars(self._file_of_pillow()) | super()._attributes()
        return attributes | _loaded()

    def __getattr__(self, name: str) -> Any:
        # only reached for attributes that no class has: quantization, layer, applist, ... and those not set yet
        if name == "_recipe":
            self._read()
            return self.__dict__.get(name)
        pickled = not self._copied or name in ("layers", "layer")
        if pickled and not name.startswith("__") and (self._file or self._unread or self.__dict__.get("_recipe")):
            return getattr(self._file_of_pillow(), name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


ForkingPickler.register(LazyJpegFile, send)


# -- files that are being opened ----------------------------------------------------------------------------

_HEADS = 1 << 13, 1 << 16
_LARGE = 1 << 18


def opened(file: IO[bytes]) -> tuple[bytes | Unread, Key | None]:
    """Read a file, but of a large one on a disk only the beginning, if that has the header; and return its key.

    The key is None for files that are not on a disk, or if it cannot be trusted.
    """
    if type(file) is io.BufferedReader and type(file.raw) is io.FileIO and _HAS_PREAD:
        descriptor = file.fileno()
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            beginning = _small(descriptor, status.st_size) if status.st_size <= _LARGE else _large(file, descriptor)
            if beginning is not None:
                return beginning, key_of(status)
    try:
        return file.read(), None
    except TypeError:  # a file object whose ``read`` needs a size, which Pillow always gives
        return b"".join(iter(lambda: file.read(_PIECE), b"")), None


_HAS_PREAD = hasattr(os, "pread")
_PIECE = 1 << 20


def _small(descriptor: int, size: int) -> bytes | None:
    content = os.pread(descriptor, size + 1, 0)
    return content if len(content) == size else None


def _large(file: Any, descriptor: int) -> Unread | None:
    for size in _HEADS:
        head = os.pread(descriptor, size, 0)
        header = claim(head)
        if header is not None:
            return None if header.pictures else Unread(file, head, header)
    return None
