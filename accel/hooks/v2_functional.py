"""``torchvision.transforms.v2.functional``: its kernels for Pillow images, and what has no kernels.

Other kernels for Pillow images are v1's functions (``tv_functional_pil``).
"""

from __future__ import annotations

from typing import Any

import torch
from PIL import Image
from torchvision.transforms import InterpolationMode

from accel.codec.header import LARGEST_SIDE
from accel.hooks.patch import Body, Function
from accel.hooks.recording import images
from accel.hooks.recording.images import as_new
from accel.hooks.recording.tensor_values import erased
from accel.hooks.tv_tensors import LazyTVImage
from accel.hooks.v2_kernels import to_dtype
from accel.lazy.from_pixels import lazy_image
from accel.lazy.tensor import LazyTensor
from accel.lazy.tensor_base import is_lazy


def to_image(original: Function, inpt: Any) -> Any:
    """``torchvision.transforms.v2.functional.to_image``, on lazy images and tensors."""
    image = lazy_image(inpt) if isinstance(inpt, Image.Image) else None
    if image is not None:
        return images.pixels(LazyTVImage, image)
    return inpt.as_lazy(LazyTVImage) if type(inpt) is LazyTensor and is_lazy(inpt) else original(inpt)


def convert_image_dtype(original: Function, image: Any, dtype: Any = torch.float32) -> Any:
    lazy = to_dtype(image, dtype, True) if is_lazy(image) else None
    return original(image, dtype) if lazy is None else lazy


def _resized_crop(
    original: Function,
    image: Any,
    top: Any,
    left: Any,
    height: Any,
    width: Any,
    size: Any,
    interpolation: Any = "bilinear",
) -> Any:
    """v2's ``resized_crop`` kernel for Pillow images."""
    mode = _MODES.get(interpolation) if isinstance(interpolation, str) else interpolation
    lazy = images.resized_crop(image, top, left, height, width, size, mode)
    return original(image, top, left, height, width, size, interpolation) if lazy is None else lazy


_MODES = {mode.value: mode for mode in InterpolationMode}


def _jpeg(original: Function, image: Any, quality: Any) -> Any:
    takes = type(quality) is int and 1 <= quality <= 100 and max(image.size) <= LARGEST_SIDE
    lazy = lazy_image(image) if takes else None
    return original(image, quality) if lazy is None else lazy.then("jpeg", (quality,))


def _erase(original: Function, image: Any, i: Any, j: Any, h: Any, w: Any, v: Any, inplace: bool = False) -> Any:
    lazy = lazy_image(image)
    params = None if lazy is None else erased((i, j, h, w), v, (len(lazy.getbands()), lazy.height, lazy.width))
    if lazy is None or params is None:
        return original(image, i, j, h, w, v, inplace)
    return as_new(lazy.then("erase_image", params))


def _permute_channels(original: Function, image: Any, permutation: Any) -> Any:
    lazy = lazy_image(image)
    if lazy is None or lazy.mode != "RGB" or sorted(permutation) != [0, 1, 2]:
        return original(image, permutation)
    return as_new(lazy.then("permute_channels", (tuple(int(channel) for channel in permutation),)))


_V2 = "torchvision.transforms.v2.functional"
PATCHES = (
    Body(f"{_V2}.to_image", to_image),
    Body(f"{_V2}._misc.convert_image_dtype", convert_image_dtype),
    Body(f"{_V2}._geometry._resize_image_pil", images.by_methods),
    Body(f"{_V2}._geometry._resized_crop_image_pil", _resized_crop),
    Body(f"{_V2}._geometry._elastic_image_pil", images.elastic(2)),
    Body(f"{_V2}._misc._gaussian_blur_image_pil", images.gaussian_blur(2)),
    Body(f"{_V2}._augment._jpeg_image_pil", _jpeg),
    Body(f"{_V2}._augment._erase_image_pil", _erase),
    Body(f"{_V2}._color._permute_channels_image_pil", _permute_channels),
)
