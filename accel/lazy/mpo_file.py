"""The lazy image that ``Image.open`` returns for a file of several pictures (MPO), as phones write them.

Imported only for such files, as is Pillow's plugin for them, which brings openers of other formats along.
"""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler
from typing import Any

from PIL.MpoImagePlugin import MpoImageFile

from accel.lazy.image_base import send
from accel.lazy.jpeg_file import LazyJpegFile
from accel.recipes.recipe import Source


class LazyMpoFile(LazyJpegFile, MpoImageFile):
    """An ``MpoImageFile`` whose first picture is lazy; the others are Pillow's."""

    becomes = MpoImageFile

    @classmethod
    def open(cls, source: Source, filename: str | bytes = "", file: Any = None) -> LazyJpegFile:
        """The image that ``Image.open`` returns; ``file``: Pillow's image of the file."""
        image = super().open(source, filename)
        image._file, image._info = file, file.info  # which changes with ``seek``
        return image

    def seek(self, frame: int) -> None:
        file = self._file_of_pillow()
        if not file._seek_check(frame):
            return
        file.seek(frame)
        self._im, self._info, self._exif, self._loaded = None, file.info, None, False
        self._hand_over(file)

    def tell(self) -> int:
        return self._file_of_pillow().tell()


ForkingPickler.register(LazyMpoFile, send)
