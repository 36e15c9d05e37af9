"""The pixels of Pillow's images in the form that accel records: uint8, row by row, three bytes per pixel.

Pillow stores a pixel of "RGB" in four bytes. ``Image.tobytes`` packs them in pieces, which takes several times as long
as one vectorised loop over the memory that the image exports through the Arrow interface (Pillow 11.2 and newer).
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from accel.system.native import units
from accel.system.private_names import private

Box = tuple[int, int, int, int]

UNIT = units.Unit("packing", "codec/arrow_kernels.py", "system/native/simd.py", "system/native/memory.py", seconds=0.5)
_pack = UNIT.function("codec.arrow_kernels", "pack", "int int int int int u1[1]w")
_of_planes = UNIT.function("codec.arrow_kernels", "of_planes", "u1[4] i8[1] u1[4]w")
_pack_luma = UNIT.function("codec.arrow_kernels", "luma", "int u1[1]w")

core = private("PIL.Image", "core.get_alignment")


def pixels(image: Image.Image) -> bytes | memoryview:
    """A copy of the pixels of a loaded image of mode "RGB" or "L", as ``image.tobytes()`` has them."""
    width, height = image.size
    return region(image, (0, 0, height, width)) or image.tobytes()


def region(image: Image.Image, box: Box) -> memoryview | None:
    """The pixels of a box (top, left, height, width) inside an "RGB" image; None if Pillow must copy them."""
    shown = _shown(image)
    if shown is None:
        return None
    top, left, height, width = box
    made = np.empty(height * width * 3, np.uint8)
    pitch, first = image.width, top * image.width + left
    if width == pitch:
        width = pitch = height * width  # one long row
    done = _pack(_address(shown, b"arrow_array"), image.width * image.height, pitch, first, width, made)
    return made.data.toreadonly() if done else None


def of_planes(planes: npt.NDArray[np.uint8], places: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Copy some of many planar images, [images, 3, height, width], to [len(places), height, width, 3].

    ``planes`` is C-contiguous; ``places`` are the numbers of the images.

    Raises:
        IndexError: there is no image of one of these numbers.
    """
    _, channels, height, width = planes.shape
    made = np.empty((len(places), height, width, channels), np.uint8)
    if not _of_planes(planes, places, made):
        raise IndexError("an image is not among those that there are")
    return made


def interleave(planes: npt.NDArray[np.uint8], made: npt.NDArray[np.uint8]) -> None:
    """Copy planar images, [images, 3, height, width], to ``made`` [images, height, width, 3]; both C-contiguous."""
    _of_planes(planes, np.arange(len(planes)), made)


def luma(image: Image.Image) -> memoryview | None:
    """The pixels of ``image.convert("L")`` of a loaded image of mode "RGB"; None if Pillow must convert it."""
    return _luma(image) if _luma_agrees() else None


def _luma(image: Image.Image) -> memoryview | None:
    shown = _shown(image)
    if shown is None:
        return None
    made = np.empty(image.width * image.height, np.uint8)
    return made.data.toreadonly() if _pack_luma(_address(shown, b"arrow_array"), made) else None


def _shown(image: Image.Image) -> Any:
    """The Arrow array of an image's memory; None if Pillow does not export it."""
    if image.mode != "RGB" or not hasattr(image, "__arrow_c_array__") or core.core.get_alignment() != 1:
        return None
    try:
        return image.__arrow_c_array__()[1]
    except (ValueError, MemoryError):  # the memory is in several blocks
        return None


@cache
def _luma_agrees() -> bool:
    """Whether the luma equals the installed Pillow's on 4096 random colours; tried once."""
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    image = Image.fromarray(noise)
    found = _luma(image)
    return found is not None and bytes(found) == image.convert("L").tobytes()


_address: Any = ctypes.pythonapi.PyCapsule_GetPointer
_address.restype, _address.argtypes = ctypes.c_int64, (ctypes.py_object, ctypes.c_char_p)
