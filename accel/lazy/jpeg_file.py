"""The image that ``Image.open`` gives of a JPEG file: Pillow's JpegImageFile, whose pixels are not computed yet."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from multiprocessing.reduction import ForkingPickler
from typing import Any, ClassVar

from PIL import Image
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile, jpeg_factory

from accel.codec.header import Header
from accel.lazy.image import LazyImage
from accel.lazy.image_base import StandsFor, send
from accel.lazy.unread import Unread
from accel.recipe import Recipe, Source


class LazyJpegFile(LazyImage, JpegImageFile, metaclass=StandsFor):
    """A ``JpegImageFile`` whose pixels are computed when they are asked for.

    All of its file has been read; of a large one the rest is when more than its header is asked for. What else Pillow
    knows of it (quantization tables, layers, EXIF, ...) is read by Pillow when it is asked for.
    """

    becomes: ClassVar[type[Image.Image]] = JpegImageFile

    _source_of: Callable[[bytes, Header], Source | None]
    filename: Any = ""
    _file: JpegImageFile | None = None
    _unread: Unread | None = None  # then there is no recipe yet

    @classmethod
    def open(cls, source: Source, filename: str | bytes = "") -> LazyJpegFile:
        """The image as ``Image.open`` returns it; ``filename`` as Pillow's images have it."""
        header = source.header
        image = cls.make(Recipe(source), header.mode, (header.width, header.height))
        image.filename = filename
        return image

    @classmethod
    def open_unread(
        cls, unread: Unread, filename: str | bytes, source_of: Callable[[bytes, Header], Source | None]
    ) -> LazyJpegFile:
        """The same of a file that is still to be read; ``source_of`` gives None if it is Pillow's after all."""
        header = unread.header
        image = cls.__new__(cls)
        image._mode, image._size = header.mode, (header.width, header.height)
        image.filename, image._unread, image._source_of = filename, unread, source_of
        return image

    def _read(self) -> None:
        unread = self._unread
        if unread is None:
            return
        with unread.lock:
            if self._unread is None:  # another thread was faster
                return
            data = unread.read()
            source = self._source_of(data, unread.header)
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
        """Let Pillow configure its decoder, as it does for thumbnails; the image is Pillow's from then on."""
        if self._loaded or (self.recipe is None and self._im is not None):
            return None
        file = self._file_of_pillow()
        drafted = file.draft(mode, size)
        if drafted is not None:
            self._recipe, self._mode, self._size = None, file.mode, file.size
        return drafted

    def verify(self) -> None:
        (self._file_of_pillow() if self._recipe is None else self._opened_by_pillow()).verify()

    def get_child_images(self) -> list[ImageFile]:
        self._read()
        return self._file_of_pillow().get_child_images()

    def close(self) -> None:
        if self._unread is not None:
            self._unread.file.close()
        Image.Image.close(self)

    def __exit__(self, *args: object) -> None:
        if self._unread is not None:
            self._unread.close()

    @property
    def _exclusive_fp(self) -> bool:
        return self._unread is not None and self._unread.exclusive

    @_exclusive_fp.setter
    def _exclusive_fp(self, exclusive: bool) -> None:
        """``Image.open`` says here whether it opened the file itself; it is closed when all of it has been read."""
        if self._unread is not None:
            self._unread.exclusive = exclusive
        opened = self.__dict__.pop("_open_file", None)
        if exclusive and opened is not None:
            opened.close()

    def _opened_by_pillow(self) -> JpegImageFile:
        if self._unread is not None:
            return JpegImageFile(BytesIO(self._unread.head), self.filename)
        assert self._recipe is not None
        return JpegImageFile(BytesIO(self._recipe.source.data), self.filename)

    def _file_of_pillow(self) -> JpegImageFile:
        if self._file is None:
            self._file = self._opened_by_pillow()
        return self._file

    def _attributes(self) -> dict[str, Any]:
        self._read()
        attributes = vars(self._file_of_pillow()) | super()._attributes()
        return attributes | {"tile": [], "fp": None}  # as after load()

    def __getattr__(self, name: str) -> Any:
        # only reached for what no class of it has: quantization, layer, applist, ... and what is not read yet
        if name == "_recipe":
            self._read()
            return self.__dict__.get(name)
        if not name.startswith("__") and (self._file or self._unread or self.__dict__.get("_recipe")):
            return getattr(self._file_of_pillow(), name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


ForkingPickler.register(LazyJpegFile, send)
