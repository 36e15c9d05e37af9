"""Recorders: torchvision's colour functions and filters on late Pillow images.

Those of ``_functional_pil`` are all made from the table: what their parameters are called there, they are called in
the row. What a parameter may be, torchvision checks only here and there; NaN and infinity, for which Pillow's
result is undefined, are refused here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torchvision.transforms import InterpolationMode

from accel.codec.header import LARGEST_SIDE
from accel.hooks.tv_functional import erased
from accel.lazy.from_pixels import begin, begin_grey
from accel.lazy.image import LazyImage
from accel.ops import OPS, Params
from accel.planning import lut
from accel.system import arithmetic, counters

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

OTHER_DEFAULT = "torch's default dtype is not float32: torchvision's arithmetic on tensors was left to it, at once"
AUTOCAST = "autocast was on for the CPU: torchvision's convolutions and matrix products were left to it, at once"

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
                values = given(names, args, kwargs, _DEFAULTS.get(name, {}))
                params = None if values is None else accepted(name, values)
                if params is not None and _makes_levels(name, params, len(late.getbands())):
                    return img if name == "adjust_hue" and late.mode == "L" else recorded(late, name, params)
            return original(img, *args, **kwargs)  # which also raises what is to be raised

        return function

    return make


def to_grayscale(original: Function) -> Function:
    """``to_grayscale`` to one channel copies only that of an eager image."""
    record = recorder("to_grayscale")(original)

    def to_grayscale(img: Any, num_output_channels: Any) -> Any:
        grey = begin_grey(img) if type(num_output_channels) is int and num_output_channels == 1 else None
        return record(img, num_output_channels) if grey is None else grey

    return to_grayscale


def recorded(image: LazyImage, name: str, params: Params) -> LazyImage:
    """A late image with one of these ops recorded."""
    mode = None
    if name == "to_grayscale":
        mode = "L" if params == (1,) else "RGB"
    late = image.then(name, params, mode)
    return _new(late) if name in _NEW_IMAGES or mode == "RGB" else late


def _makes_levels(name: str, params: Params, channels: int) -> bool:
    """Whether Pillow takes these parameters, where the op is a table of levels (which will be wanted anyway)."""
    if OPS[name].kind == "levels":
        try:
            lut.table(name, params, channels)
        except Exception:
            return False  # the original says what is wrong
    return True


def given(names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any], defaults: dict[str, Any]) -> Any:
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


# -- functions that torchvision runs on tensors ---------------------------------------------------------------


def gaussian_blur(version: int) -> Callable[[Function], Function]:
    """v1's ``gaussian_blur``, or v2's kernel for Pillow images: they sample the Gaussian each in its own way."""

    def make(original: Function) -> Function:
        def gaussian_blur(image: Any, kernel_size: Any = None, sigma: Any = None, **kwargs: Any) -> Any:
            late = begin(image) if not kwargs else None
            params = None if late is None else blurred(kernel_size, sigma, late.size)
            if late is not None and params is not None and arithmetic.autocasts():
                counters.fallback(AUTOCAST)
            elif late is not None and params is not None:
                return _new(late.then("gaussian_blur", (*params, version)))
            return original(*(() if "img" in kwargs else (image,)), kernel_size, sigma, **kwargs)

        return gaussian_blur

    return make


def blurred(kernel_size: Any, sigma: Any, size: tuple[int, int]) -> Params | None:
    sizes = [kernel_size] * 2 if isinstance(kernel_size, int) else kernel_size
    if not isinstance(sizes, (list, tuple)) or len(sizes) != 2 or not all(type(each) is int for each in sizes):
        return None
    if sigma is None:
        sigma = [each * 0.15 + 0.35 for each in sizes]
    sigmas = list(sigma) if isinstance(sigma, (list, tuple)) else [sigma]
    sigmas = sigmas * 2 if len(sigmas) == 1 else sigmas
    if len(sigmas) != 2 or not all(isinstance(each, (int, float)) for each in sigmas):
        return None
    if not all(map(math.isfinite, sigmas)):
        raise ValueError(f"gaussian_blur: sigma must be finite, got {sigma}")
    if any(each < 1 or each % 2 == 0 or each // 2 >= length for each, length in zip(sizes, size, strict=True)):
        return None
    return None if min(sigmas) <= 0 else (*sizes, *map(float, sigmas))


def elastic(version: int) -> Callable[[Function], Function]:
    """v1's ``elastic_transform``, or v2's kernel for Pillow images."""

    def make(original: Function) -> Function:
        def elastic(
            image: Any, displacement: Any, interpolation: Any = InterpolationMode.BILINEAR, fill: Any = None
        ) -> Any:
            late = begin(image) if isinstance(displacement, torch.Tensor) else None
            mode = interpolation.value if isinstance(interpolation, InterpolationMode) else interpolation
            if (
                late is None
                or mode not in ("nearest", "bilinear")
                or displacement.shape != (1, late.height, late.width, 2)
                or not _fills(fill, len(late.getbands()))
            ):
                return original(image, displacement, interpolation, fill)
            if not arithmetic.is_default():
                counters.fallback(OTHER_DEFAULT)
                return original(image, displacement, interpolation, fill)
            if not displacement.sum().isfinite():
                raise ValueError("elastic_transform: the displacement must be finite")
            plain = tuple(fill) if isinstance(fill, list) else fill
            moved = displacement.detach().clone()
            return _new(late.then("elastic", (moved, mode, plain, version)))

        return elastic

    return make


def _fills(fill: Any, channels: int) -> bool:
    """Whether a fill is one that torchvision's function for tensors takes."""
    if fill is None or isinstance(fill, (int, float)):
        return True
    numbers = isinstance(fill, (list, tuple)) and all(isinstance(value, (int, float)) for value in fill)
    return numbers and len(fill) in (1, channels)


def jpeg(original: Function) -> Function:
    """v2's ``jpeg`` kernel for Pillow images."""

    def jpeg(image: Any, quality: Any) -> Any:
        takes = type(quality) is int and 1 <= quality <= 100 and max(image.size) <= LARGEST_SIDE
        late = begin(image) if takes else None
        return original(image, quality) if late is None else late.then("jpeg", (quality,))

    return jpeg


def erase(original: Function) -> Function:
    """v2's ``erase`` kernel for Pillow images."""

    def erase(image: Any, i: Any, j: Any, h: Any, w: Any, v: Any, inplace: bool = False) -> Any:
        late = begin(image)
        params = None if late is None else erased((i, j, h, w), v, (len(late.getbands()), late.height, late.width))
        if late is None or params is None:
            return original(image, i, j, h, w, v, inplace)
        return _new(late.then("erase_image", params))

    return erase


def permute_channels(original: Function) -> Function:
    """v2's ``permute_channels`` kernel for Pillow images."""

    def permute_channels(image: Any, permutation: Any) -> Any:
        late = begin(image)
        if late is None or late.mode != "RGB" or sorted(permutation) != [0, 1, 2]:
            return original(image, permutation)
        return _new(late.then("permute_channels", (tuple(int(channel) for channel in permutation),)))

    return permute_channels


def _new(image: LazyImage) -> LazyImage:
    """Of an image that Pillow makes anew: without the ``info`` of the one it is made of."""
    image.info = {}
    return image
