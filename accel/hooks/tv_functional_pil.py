"""``torchvision.transforms._functional_pil``: on lazy images its functions are recorded.

Those of colours are all made from the table: what their parameters are called there, they are called in the row. What
a parameter may be, torchvision checks only here and there; NaN and infinity, for which Pillow's result is undefined,
are refused here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from accel.hooks.patch import Body, Function
from accel.hooks.recording import accepted
from accel.hooks.recording.images import LARGEST, by_methods, recorded
from accel.hooks.recording.tensors import given
from accel.lazy.from_pixels import lazy_crop, lazy_grey, lazy_image
from accel.ops import OPS, Params, colour
from accel.planning import lut


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


# -- colours ------------------------------------------------------------------------------------------------


def recorder(name: str) -> Function:
    """The recorder of one of ``NAMES``, to be made around the original."""
    names = OPS[name].params
    accept = _ACCEPTED.get(name, _real)

    def function(original: Function, img: Any, *args: Any, **kwargs: Any) -> Any:
        lazy = lazy_image(img)
        if lazy is not None:
            values = given(names, args, kwargs, _DEFAULTS.get(name, {}))
            params = None if values is None else accept(name, values)
            if params is not None and _makes_levels(name, params, len(lazy.getbands())):
                return img if name == "adjust_hue" and lazy.mode == "L" else recorded(lazy, name, params)
        return original(img, *args, **kwargs)  # which also raises what is to be raised

    return function


def to_grayscale(original: Function, img: Any, num_output_channels: Any) -> Any:
    """``to_grayscale`` to one channel copies only that of an eager image."""
    grey = lazy_grey(img) if type(num_output_channels) is int and num_output_channels == 1 else None
    return _to_grayscale(original, img, num_output_channels) if grey is None else grey


def _makes_levels(name: str, params: Params, channels: int) -> bool:
    """Whether Pillow takes these parameters, where the op is a table of levels (which will be wanted anyway)."""
    if OPS[name].kind == "levels":
        try:
            lut.table(name, params, channels)
        except Exception:
            return False  # the original says what is wrong
    return True


_DEFAULTS: dict[str, dict[str, Any]] = {"adjust_gamma": {"gain": 1.0}}


def _real(name: str, given: Params) -> Params | None:
    """Finite numbers as they are; None for what is no number."""
    numbers = []
    for parameter, value in zip(OPS[name].params, given, strict=True):
        if not isinstance(value, (int, float)):
            try:
                value = float(value)  # a tensor or an array of one element
            except (TypeError, ValueError, RuntimeError):
                return None
        if not math.isfinite(value) or abs(value) > LARGEST:
            raise ValueError(f"{name}: {parameter} must be a finite float32 number, got {value}")
        numbers.append(value)
    return tuple(numbers)


def _hue(name: str, given: Params) -> Params | None:
    factor = given[0]
    inside = isinstance(factor, (int, float)) and -0.5 <= factor <= 0.5
    return (float(factor),) if inside else None


def _gamma(name: str, given: Params) -> Params | None:
    numbers = _real(name, given)
    return None if numbers is None or numbers[0] < 0 else numbers


_ACCEPTED: dict[str, Callable[[str, Params], Params | None]] = {
    "adjust_gamma": _gamma,
    "adjust_hue": _hue,
    "posterize": accepted.bits,
    "to_grayscale": accepted.channels,
}


_to_grayscale = recorder("to_grayscale")
_METHODS = ("hflip", "vflip", "resize", "rotate", "affine", "perspective")
_V1 = "torchvision.transforms._functional_pil"
PATCHES = (
    *(Body(f"{_V1}.{name}", by_methods) for name in _METHODS),
    *(Body(f"{_V1}.{row.name}", recorder(row.name)) for row in colour.FUNCTIONS if row.name != "to_grayscale"),
    Body(f"{_V1}.to_grayscale", to_grayscale),
    Body(f"{_V1}.crop", crop),
    Body(f"{_V1}.pad", pad),
)
