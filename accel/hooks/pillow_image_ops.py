"""``PIL.ImageOps``: functions that paste a lazy image into a new one record a pad instead.

Most others call nothing but methods of the image, which record.
"""

from __future__ import annotations

from typing import Any

from PIL import Image, ImageOps

from accel.hooks.patch import Body, Function
from accel.hooks.recording.images import is_lazy
from accel.lazy.image import LazyImage

_BICUBIC = Image.Resampling.BICUBIC


def pad(
    original: Function, image: Any, size: Any, method: Any = _BICUBIC, color: Any = None, centering: Any = (0.5, 0.5)
) -> Any:
    """``ImageOps.pad``: to the size that it fits into, then up to the one that is wanted."""
    if not is_lazy(image) or not _are_whole(size, 2):
        return original(image, size, method, color, centering)
    image = ImageOps.contain(image, size, method)
    if image.size == size:
        return image
    across, down = size[0] - image.width, size[1] - image.height
    left = round(across * max(0, min(centering[0], 1))) if across else 0
    top = 0 if across else round(down * max(0, min(centering[1], 1)))
    padded = _padded(image, (left, top, across - left, down - top), color)
    return original(image, size, method, color, centering) if padded is None else padded


def expand(original: Function, image: Any, border: Any = 0, fill: Any = 0) -> Any:
    """``ImageOps.expand``."""
    sides = border if isinstance(border, tuple) else (border, border)
    sides = sides * 2 if len(sides) == 2 else sides
    padded = _padded(image, sides, fill) if _are_whole(sides, 4) else None
    return original(image, border, fill) if padded is None else padded


def _padded(image: Any, sides: tuple[int, int, int, int], colour: Any) -> LazyImage | None:
    """An image pasted into one of this colour; None for what is not recorded."""
    left, top, right, bottom = sides
    known = isinstance(colour, (str, int)) or colour is None or (isinstance(colour, tuple) and _are_whole(colour))
    if not is_lazy(image) or not known or "transparency" in image.info:
        return None
    if image.width + left + right < 1 or image.height + top + bottom < 1:
        return None
    padded: LazyImage = image.pad(sides, "constant", colour)
    return padded


def _are_whole(values: Any, count: int | None = None) -> bool:
    return isinstance(values, (tuple, list)) and count in (None, len(values)) and all(type(n) is int for n in values)


PATCHES = (Body("PIL.ImageOps.pad", pad), Body("PIL.ImageOps.expand", expand))
