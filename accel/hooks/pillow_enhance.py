"""``PIL.ImageEnhance``: recorded on lazy images, as timm's policies call it.

It blends an image with a degenerate one, which is what a factor of 0 gives; both are recorded.
"""

from __future__ import annotations

from typing import Any

from PIL import ImageEnhance

from accel.hooks.patch import Body, Function
from accel.hooks.recording.images import is_lazy
from accel.ops.accept import FLOAT32

ENHANCERS = {
    ImageEnhance.Brightness: "adjust_brightness",
    ImageEnhance.Color: "adjust_saturation",
    ImageEnhance.Contrast: "adjust_contrast",
    ImageEnhance.Sharpness: "adjust_sharpness",
}
"""The op that each class's ``enhance`` is."""

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
    *(Body(f"PIL.ImageEnhance.{cls.__name__}.__init__", _init) for cls in ENHANCERS),
    Body("PIL.ImageEnhance._Enhance.enhance", _enhance),
)
