"""The image that ``Image.open`` gives of a file of several pictures, as phones write them.

Imported when there is one, as is Pillow's plugin for such files: with it come openers of other formats.
"""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler
from typing import Any

from PIL.MpoImagePlugin import MpoImageFile

from accel.lazy.image_base import send
from accel.lazy.jpeg_file import LazyJpegFile
from accel.recipe import Source


class LazyMpoFile(LazyJpegFile, MpoImageFile):
    """An ``MpoImageFile``, of which the first picture is lazy and any other one is Pillow's."""

    becomes = MpoImageFile

    @classmethod
    def open(cls, source: Source, filename: str | bytes = "", file: Any = None) -> LazyJpegFile:
        """The image as ``Image.open`` returns it; ``file``: as Pillow opened it."""
        image = super().open(source, filename)
        image._file, image._info = file, file.info  # which it changes when it is told to seek
        return image

    def seek(self, frame: int) -> None:
        file = self._file_of_pillow()
        if not file._seek_check(frame):
            return
        self._recipe = None
        file.seek(frame)
        self._im, self._info, self._exif, self._loaded = None, file.info, None, False
        self._mode, self._size = file.mode, file.size

    def tell(self) -> int:
        return self._file_of_pillow().tell()


ForkingPickler.register(LazyMpoFile, send)
