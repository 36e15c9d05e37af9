"""``PIL.ImageOps`` and ``PIL.ImageEnhance``: recorded on lazy images.

Functions of ``ImageOps`` that paste an image into a new one record a pad instead; most others only call methods of the
image, which record. ``ImageEnhance`` blends an image with a degenerate one, the result of a factor of 0; both are
recorded.
"""

from __future__ import annotations

from typing import Any

from PIL import Image, ImageEnhance, ImageOps

from accel.hooks.patch import Body, Function
from accel.hooks.recording.images import is_lazy
from accel.lazy.image import LazyImage
from accel.ops.accept import FLOAT32

_BICUBIC = Image.Resampling.BICUBIC


def pad(
    original: Function, image: Any, size: Any, method: Any = _BICUBIC, color: Any = None, centering: Any = (0.5, 0.5)
) -> Any:
    """``ImageOps.pad``: resize the image to fit into the size, then pad it to the size."""
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
    """The image padded by these sides (left, top, right, bottom) with a colour; None if that is not recorded."""
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


ENHANCERS = {
    ImageEnhance.Brightness: "adjust_brightness",
    ImageEnhance.Color: "adjust_saturation",
    ImageEnhance.Contrast: "adjust_contrast",
    ImageEnhance.Sharpness: "adjust_sharpness",
}
"""The op that each class's ``enhance`` records."""

_NEITHER: tuple[Any, Any] = None, None


def _init(original: Function, self: Any, image: Any) -> None:
    name = ENHANCERS.get(type(self))
    if name is None or not is_lazy(image):
        original(self, image)
        return
    self.image, self.degenerate = image, image.then(name, (0.0,))
    self._lazy = image, self.degenerate
    if name == "adjust_saturation":
        self.intermediate_mode = "L"


def _enhance(original: Function, self: Any, factor: Any) -> Any:
    image, degenerate = getattr(self, "_lazy", _NEITHER)
    known = image is self.image and degenerate is self.degenerate
    number = isinstance(factor, (int, float)) and abs(factor) <= FLOAT32
    if not known or not number or not is_lazy(image) or not is_lazy(degenerate):
        return original(self, factor)
    return image.then(ENHANCERS[type(self)], (factor,))


PATCHES = (
    Body("PIL.ImageOps.pad", pad),
    Body("PIL.ImageOps.expand", expand),
    *(Body(f"PIL.ImageEnhance.{cls.__name__}.__init__", _init) for cls in ENHANCERS),
    Body("PIL.ImageEnhance._Enhance.enhance", _enhance),
)
