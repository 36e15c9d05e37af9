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
    if image.mode == "RGB" and hasattr(image, "__arrow_c_array__") and core.core.get_alignment() == 1:
        try:
            _, array = image.__arrow_c_array__()
        except (ValueError, MemoryError):  # its memory is in several blocks
            return image.tobytes()
        packed = np.empty(image.width * image.height * 3, np.uint8)
        if _pack()(_address(array, b"arrow_array"), packed):
            return packed.data.toreadonly()
    return image.tobytes()


_address: Any = ctypes.pythonapi.PyCapsule_GetPointer
_address.restype, _address.argtypes = ctypes.c_int64, (ctypes.py_object, ctypes.c_char_p)


@cache
def _pack() -> Any:
    from accel.codec import packing  # late: it is compiled

    return packing.pack
