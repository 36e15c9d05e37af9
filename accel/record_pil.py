"""Recorders: the colour functions of ``torchvision.transforms._functional_pil`` on late images.

All are made from the table: what a function's parameters are called there, they are called in the row. What a
parameter may be, torchvision checks only here and there; NaN and infinity, for which Pillow's result is undefined,
are refused here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from accel import levels
from accel.begin import begin
from accel.image import LazyImage
from accel.ops import OPS, Params

Function = Callable[..., Any]

NAMES = (
    "adjust_brightness",
    "adjust_contrast",
    "adjust_gamma",
    "adjust_hue",
    "adjust_saturation",
    "adjust_sharpness",
    "autocontrast",
    "equalize",
    "invert",
    "posterize",
    "solarize",
    "to_grayscale",
)
"""The functions that are recorded, each as the op of the same name."""

_NEW_IMAGES = {"adjust_brightness", "adjust_contrast", "adjust_hue"}
"""Ops whose result Pillow makes anew, without the ``info`` of the image."""


def recorder(name: str) -> Callable[[Function], Function]:
    """The recorder of one of ``NAMES``, to be made around the original."""
    names = OPS[name].params
    accepted = _ACCEPTED.get(name, _real)

    def make(original: Function) -> Function:
        def function(img: Any, *args: Any, **kwargs: Any) -> Any:
            late = begin(img)
            if late is not None:
                given = _given(names, args, kwargs, _DEFAULTS.get(name, {}))
                params = None if given is None else accepted(name, given)
                if params is not None and _makes_levels(name, params, len(late.getbands())):
                    return img if name == "adjust_hue" and late.mode == "L" else _recorded(late, name, params)
            return original(img, *args, **kwargs)  # which also raises what is to be raised

        return function

    return make


def _recorded(image: LazyImage, name: str, params: Params) -> LazyImage:
    mode = None
    if name == "to_grayscale":
        mode = "L" if params == (1,) else "RGB"
    late = image.then(name, params, mode)
    if name in _NEW_IMAGES or mode == "RGB":
        late.info = {}
    return late


def _makes_levels(name: str, params: Params, channels: int) -> bool:
    """Whether Pillow takes these parameters, where the op is a table of levels (which will be wanted anyway)."""
    if OPS[name].kind == "levels":
        try:
            levels.table(name, params, channels)
        except Exception:
            return False  # the original says what is wrong
    return True


def _given(names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any], defaults: dict[str, Any]) -> Any:
    """The arguments in the order of ``names``; None for what is no call of such a function."""
    rest = {**defaults, **kwargs}
    try:
        given = (*args, *(rest.pop(name) for name in names[len(args) :]))
    except KeyError:
        return None
    unknown = set(rest) - set(defaults)
    return None if unknown or len(given) != len(names) else given


_DEFAULTS: dict[str, dict[str, Any]] = {"adjust_gamma": {"gain": 1.0}}

_LARGEST = 3.4028234663852886e38
"""Of float32, in which Pillow blends."""


def _real(name: str, given: Params) -> Params | None:
    """Finite numbers as they are; None for what is no number."""
    numbers = []
    for parameter, value in zip(OPS[name].params, given, strict=True):
        if not isinstance(value, (int, float)):
            try:
                value = float(value)  # a tensor or an array of one element
            except (TypeError, ValueError, RuntimeError):
                return None
        if not math.isfinite(value) or abs(value) > _LARGEST:
            raise ValueError(f"{name}: {parameter} must be a finite float32 number, got {value}")
        numbers.append(value)
    return tuple(numbers)


def _hue(name: str, given: Params) -> Params | None:
    factor = given[0]
    inside = isinstance(factor, (int, float)) and -0.5 <= factor <= 0.5
    return (float(factor),) if inside else None


def _gamma(name: str, given: Params) -> Params | None:
    numbers = _real(name, given)
    if numbers is None or numbers[0] < 0:
        return None
    return numbers


def _bits(name: str, given: Params) -> Params | None:
    return given if type(given[0]) is int and 0 <= given[0] <= 8 else None


def _channels(name: str, given: Params) -> Params | None:
    return given if given[0] in (1, 3) else None


_ACCEPTED: dict[str, Callable[[str, Params], Params | None]] = {
    "adjust_gamma": _gamma,
    "adjust_hue": _hue,
    "posterize": _bits,
    "to_grayscale": _channels,
}
