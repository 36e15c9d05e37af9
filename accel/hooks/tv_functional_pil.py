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
    if lazy is None:
        return original(img, padding, fill, padding_mode)
    img = lazy
    sides = _sides(padding)
    colour = _colour(fill, len(img.getbands()))
    width, height = img.size
    if (
        sides is not None
        and colour is not None
        and padding_mode in ("constant", "edge", "reflect", "symmetric")
        and (padding_mode == "constant" or min(sides) >= 0)
        and width + sides[0] + sides[2] > 0
        and height + sides[1] + sides[3] > 0
    ):
        return img.pad(sides, padding_mode, colour if padding_mode == "constant" else None)
    return original(img, padding, fill, padding_mode)  # which also raises for what is no such argument


def _sides(padding: Any) -> tuple[int, int, int, int] | None:
    """(left, top, right, bottom) of torchvision's forms of padding; None for what is no such form."""
    if type(padding) is int:
        return padding, padding, padding, padding
    sides = [padding] if isinstance(padding, int) else padding
    if not isinstance(sides, (list, tuple)) or len(sides) not in (1, 2, 4):
        return None
    if not all(type(side) is int for side in sides):
        return None
    left, top, right, bottom = [*sides] * (4 // len(sides))
    return left, top, right, bottom


def _colour(fill: Any, channels: int) -> tuple[int, ...] | None:
    """A fill as one int per channel, as torchvision hands it to Pillow; None for what is no such form."""
    if type(fill) is int:
        return (fill,) * channels
    colour = [0 if fill is None else fill] if not isinstance(fill, (list, tuple)) else list(fill)
    if len(colour) == 1:
        colour *= channels
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
