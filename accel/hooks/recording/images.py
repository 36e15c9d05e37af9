"""Recorders that several of torchvision's modules share: functions on lazy Pillow images, and their way to tensors."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import torch
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.functional import pil_modes_mapping

from accel.hooks.patch import Function
from accel.lazy.from_pixels import lazy_image
from accel.lazy.image import LazyImage
from accel.lazy.tensor_base import LazyTensorBase
from accel.ops import Params
from accel.recipe import Recipe, Step
from accel.system import arithmetic, counters

T = TypeVar("T", bound=LazyTensorBase)

OTHER_DEFAULT = "torch's default dtype is not float32: torchvision's arithmetic on tensors was left to it, at once"

AUTOCAST = "autocast was on for the CPU: torchvision's convolutions and matrix products were left to it, at once"

LARGEST = 3.4028234663852886e38
"""The largest number of float32, in which Pillow blends."""

_NEW_IMAGES = {"adjust_brightness", "adjust_contrast", "adjust_hue"}
"""Ops whose result Pillow makes anew, without the ``info`` of the image."""


def by_methods(original: Function, img: Any, *args: Any, **kwargs: Any) -> Any:
    """A function on Pillow images that calls nothing but their methods, which record."""
    lazy = lazy_image(img)
    if lazy is None:
        return original(img, *args, **kwargs)
    result = original(lazy, *args, **kwargs)
    return img if result is lazy else result


def recorded(image: LazyImage, name: str, params: Params) -> LazyImage:
    """A lazy image with one of these ops recorded."""
    mode = None
    if name == "to_grayscale":
        mode = "L" if params == (1,) else "RGB"
    lazy = image.then(name, params, mode)
    return as_new(lazy) if name in _NEW_IMAGES or mode == "RGB" else lazy


def as_new(image: LazyImage) -> LazyImage:
    """An image that Pillow makes anew, without the ``info`` of the one it is made of."""
    image.info = {}
    return image


def gaussian_blur(version: int) -> Function:
    """v1's ``gaussian_blur``, or v2's kernel for Pillow images: they sample the Gaussian each in its own way."""

    def gaussian_blur(original: Function, image: Any, kernel_size: Any = None, sigma: Any = None, **kwargs: Any) -> Any:
        lazy = lazy_image(image) if not kwargs else None
        params = None if lazy is None else blurred(kernel_size, sigma, lazy.size)
        if lazy is not None and params is not None and arithmetic.autocasts():
            counters.fallback(AUTOCAST)
        elif lazy is not None and params is not None:
            return as_new(lazy.then("gaussian_blur", (*params, version)))
        return original(*(() if "img" in kwargs else (image,)), kernel_size, sigma, **kwargs)

    return gaussian_blur


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


def elastic(version: int) -> Function:
    """v1's ``elastic_transform``, or v2's kernel for Pillow images."""

    def elastic(
        original: Function,
        image: Any,
        displacement: Any,
        interpolation: Any = InterpolationMode.BILINEAR,
        fill: Any = None,
    ) -> Any:
        lazy = lazy_image(image) if isinstance(displacement, torch.Tensor) else None
        mode = interpolation.value if isinstance(interpolation, InterpolationMode) else interpolation
        if (
            lazy is None
            or mode not in ("nearest", "bilinear")
            or displacement.shape != (1, lazy.height, lazy.width, 2)
            or not _fills(fill, len(lazy.getbands()))
        ):
            return original(image, displacement, interpolation, fill)
        if not arithmetic.is_default():
            counters.fallback(OTHER_DEFAULT)
            return original(image, displacement, interpolation, fill)
        if not displacement.sum().isfinite():
            raise ValueError("elastic_transform: the displacement must be finite")
        plain = tuple(fill) if isinstance(fill, list) else fill
        moved = displacement.detach().clone()
        return as_new(lazy.then("elastic", (moved, mode, plain, version)))

    return elastic


def _fills(fill: Any, channels: int) -> bool:
    """Whether a fill is one that torchvision's function for tensors takes."""
    if fill is None or isinstance(fill, (int, float)):
        return True
    numbers = isinstance(fill, (list, tuple)) and all(isinstance(value, (int, float)) for value in fill)
    return numbers and len(fill) in (1, channels)


def resized_crop(image: Any, top: Any, left: Any, height: Any, width: Any, size: Any, mode: Any) -> Image.Image | None:
    if not isinstance(image, LazyImage) or image.recipe is None or type(mode) is not InterpolationMode:
        return None
    if not isinstance(size, (list, tuple)) or len(size) != 2:
        return None
    cropped = image.crop((left, top, left + width, top + height))
    if cropped.size == (size[1], size[0]):
        return cropped
    return cropped.resize((size[1], size[0]), pil_modes_mapping[mode])


def pixels(cls: type[T], image: LazyImage) -> T:
    """A lazy image as a uint8 tensor, which torchvision strides [height, width, channel]."""
    return tensor(cls, image, _PIXELS, torch.uint8, interleaved=True)


_PIXELS: Step = ("pil_to_tensor", ())


def tensor(cls: type[T], image: LazyImage, step: Step, dtype: torch.dtype, interleaved: bool = False) -> T:
    width, height = image.size
    shape = (3 if image.mode == "RGB" else 1, height, width)
    if image._parent:
        image.used_again()
    image._parent = image._loaded = True
    recipe = image._recipe
    assert recipe is not None
    source, steps = recipe
    if source.origin is not None and not steps:  # values that were an image for a while
        source, steps = source.origin
    return cls.of((Recipe(source, (*steps, step)),), (), shape, dtype, interleaved)
