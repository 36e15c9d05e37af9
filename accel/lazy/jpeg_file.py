"""What ``Image.open`` gives of a JPEG file: Pillow's JpegImageFile, whose pixels are late."""

from __future__ import annotations

from io import BytesIO
from multiprocessing.reduction import ForkingPickler
from typing import Any

from PIL import Image
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile

from accel.lazy.image import LazyImage, StandsFor, send
from accel.sources.recipe import Recipe, Source


class LazyJpegFile(LazyImage, JpegImageFile, metaclass=StandsFor):
    """A ``JpegImageFile`` with late pixels.

    All of its file has been read. What else Pillow knows of it (quantization tables, layers, EXIF, ...) is read by
    Pillow when it is asked for.
    """

    becomes = JpegImageFile

    filename: Any = ""
    _file: JpegImageFile | None = None

    @classmethod
    def open(cls, source: Source, filename: str | bytes = "") -> LazyJpegFile:
        """The image as ``Image.open`` returns it; ``filename`` as Pillow's images have it."""
        header = source.header
        image = cls._make(Recipe(source), header.mode, (header.width, header.height))
        image.filename = filename
        return image

    def _pixels(self) -> Any:
        if self._recipe is None:  # handed over to Pillow by draft()
            file = self._file_of_pillow()
            file.load()
            return file.im
        return super()._pixels()

    def draft(self, mode: str | None, size: tuple[int, int] | None) -> Any:
        """Let Pillow configure its decoder, as it does for thumbnails; the image is Pillow's from then on."""
        if self._loaded or self.recipe is None:
            return None
        file = self._file_of_pillow()
        drafted = file.draft(mode, size)
        if drafted is not None:
            self._recipe, self._mode, self._size = None, file.mode, file.size
        return drafted

    def verify(self) -> None:
        (self._file_of_pillow() if self._recipe is None else self._opened_by_pillow()).verify()

    def get_child_images(self) -> list[ImageFile]:
        return self._file_of_pillow().get_child_images()

    def close(self) -> None:
        Image.Image.close(self)  # there is no file to be closed

    def __exit__(self, *args: object) -> None:
        pass

    @property
    def _exclusive_fp(self) -> bool:
        return False

    @_exclusive_fp.setter
    def _exclusive_fp(self, exclusive: bool) -> None:
        """``Image.open`` says here whether it opened the file itself; all of it has been read by then."""
        opened = self.__dict__.pop("_open_file", None)
        if exclusive and opened is not None:
            opened.close()

    def _opened_by_pillow(self) -> JpegImageFile:
        assert self._recipe is not None
        return JpegImageFile(BytesIO(self._recipe.source.data), self.filename)

    def _file_of_pillow(self) -> JpegImageFile:
        if self._file is None:
            self._file = self._opened_by_pillow()
        return self._file

    def _attributes(self) -> dict[str, Any]:
        attributes = vars(self._file_of_pillow()) | super()._attributes()
        return attributes | {"tile": [], "fp": None}  # as after load()

    def __getattr__(self, name: str) -> Any:
        # only reached for what no class of it has: quantization, layer, applist, ...
        if not name.startswith("__") and (self._file or self.__dict__.get("_recipe")):
            return getattr(self._file_of_pillow(), name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


ForkingPickler.register(LazyJpegFile, send)
