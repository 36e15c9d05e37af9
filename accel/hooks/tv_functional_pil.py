"""``torchvision.transforms._functional_pil``: on lazy images its functions are recorded.

Those of colours have a row of the table that names them (``table``).
"""

from __future__ import annotations

from typing import Any

from accel.hooks.patch import Body, Function, Shortcut
from accel.hooks.recording.images import by_methods, recorder
from accel.lazy.from_pixels import lazy_crop, lazy_grey, lazy_image
from accel.ops import OPS, accept


def crop(original: Function, img: Any, *box: Any, **kwargs: Any) -> Any:
    """``torchvision.transforms._functional_pil.crop``: of an eager image a copy of the crop is enough."""
    lazy = lazy_crop(img, box) if len(box) == 4 and not kwargs else None
    if lazy is not None:
        return lazy
    cropped = original(img, *box, **kwargs)
    return lazy_image(cropped) or cropped


def pad(original: Function, img: Any, padding: Any, fill: Any = 0, padding_mode: Any = "constant") -> Any:
    """``torchvision.transforms._functional_pil.pad``."""
    lazy = lazy_image(img)
    img, sides = lazy or img, accept.sides(padding)
    if lazy is None or sides is None:
        return original(img, padding, fill, padding_mode)  # which also raises for what is no such argument
    left, top, right, bottom = sides
    constant, colour = padding_mode == "constant", _colour(fill, len(lazy.getbands()))
    known = constant or (padding_mode in ("edge", "reflect", "symmetric") and min(sides) >= 0)
    if not known or colour is None or lazy.width + left + right < 1 or lazy.height + top + bottom < 1:
        return original(img, padding, fill, padding_mode)
    return lazy.pad(sides, padding_mode, colour if constant else None)


def _colour(fill: Any, channels: int) -> tuple[int, ...] | None:
    """A fill as one int per channel, as torchvision hands it to Pillow; None for what is no such form."""
    colour = accept.listed(fill)
    colour *= channels if len(colour) == 1 else 1
    if len(colour) != channels or not all(isinstance(value, (int, float)) for value in colour):
        return None
    return tuple(int(value) for value in colour)


def to_grayscale(original: Function) -> Function:
    """``to_grayscale``: to one channel it copies only that of an eager image."""
    of_lazy = recorder(OPS["to_grayscale"], accept.channels)(original)

    def to_grayscale(img: Any, num_output_channels: Any) -> Any:
        grey = lazy_grey(img) if type(num_output_channels) is int and num_output_channels == 1 else None
        return of_lazy(img, num_output_channels) if grey is None else grey

    return to_grayscale


_METHODS = ("hflip", "vflip", "resize", "rotate", "affine", "perspective")
_V1 = "torchvision.transforms._functional_pil"
PATCHES = (
    *(Body(f"{_V1}.{name}", by_methods) for name in _METHODS),
    Shortcut(f"{_V1}.to_grayscale", to_grayscale),
    Body(f"{_V1}.crop", crop),
    Body(f"{_V1}.pad", pad),
)
