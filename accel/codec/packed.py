"""The pixels of Pillow's images as they are recorded: uint8, row by row, three bytes for a pixel.

Pillow keeps a pixel of "RGB" in four bytes. ``Image.tobytes`` packs them in pieces, in several times the time of one
vectorised loop over the memory that the image shows through the Arrow interface (Pillow 11.2 and newer).
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from PIL import Image

from accel.system.seams import private

core = private("PIL.Image", "core.get_alignment")


def pixels(image: Image.Image) -> bytes | memoryview:
    """A copy of the pixels of a loaded image of mode "RGB" or "L", as ``image.tobytes()`` has them."""
    return _filled(image, 3, "pack") or image.tobytes()


def luma(image: Image.Image) -> memoryview | None:
    """The pixels of ``image.convert("L")`` of a loaded image of mode "RGB"; None where Pillow had better make them."""
    return _filled(image, 1, "luma") if _luma_agrees() else None


def _filled(image: Image.Image, channels: int, loop: str) -> memoryview | None:
    """What a loop makes of Pillow's memory; None where that cannot be read."""
    if image.mode != "RGB" or not hasattr(image, "__arrow_c_array__") or core.core.get_alignment() != 1:
        return None
    try:
        _, array = image.__arrow_c_array__()
    except (ValueError, MemoryError):  # its memory is in several blocks
        return None
    made = np.empty(image.width * image.height * channels, np.uint8)
    done = getattr(_packing(), loop)(_address(array, b"arrow_array"), made)
    return made.data.toreadonly() if done else None


@cache
def _luma_agrees() -> bool:
    """Whether it is the installed Pillow's, on some colours of all kinds."""
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    image = Image.fromarray(noise)
    found = _filled(image, 1, "luma")
    return found is not None and bytes(found) == image.convert("L").tobytes()


_address: Any = ctypes.pythonapi.PyCapsule_GetPointer
_address.restype, _address.argtypes = ctypes.c_int64, (ctypes.py_object, ctypes.c_char_p)


@cache
def _packing() -> Any:
    from accel.codec import packing  # late: it is compiled

    return packing
