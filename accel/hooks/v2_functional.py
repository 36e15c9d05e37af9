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
from accel.lazy.base import is_late
from accel.lazy.from_pixels import begin
from accel.lazy.tensor import LazyTensor


def to_image(original: Function, inpt: Any) -> Any:
    """``torchvision.transforms.v2.functional.to_image``, on lazy images and tensors."""
    image = begin(inpt) if isinstance(inpt, Image.Image) else None
    if image is not None:
        return images.pixels(LazyTVImage, image)
    return inpt.as_late(LazyTVImage) if type(inpt) is LazyTensor and is_late(inpt) else original(inpt)


def convert_image_dtype(original: Function, image: Any, dtype: Any = torch.float32) -> Any:
    """``torchvision.transforms.v2.functional.convert_image_dtype``."""
    late = to_dtype(image, dtype, True) if is_late(image) else None
    return original(image, dtype) if late is None else late


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
    late = images.resized_crop(image, top, left, height, width, size, mode)
    return original(image, top, left, height, width, size, interpolation) if late is None else late


_MODES = {mode.value: mode for mode in InterpolationMode}


def _jpeg(original: Function, image: Any, quality: Any) -> Any:
    """v2's ``jpeg`` kernel for Pillow images."""
    takes = type(quality) is int and 1 <= quality <= 100 and max(image.size) <= LARGEST_SIDE
    late = begin(image) if takes else None
    return original(image, quality) if late is None else late.then("jpeg", (quality,))


def _erase(original: Function, image: Any, i: Any, j: Any, h: Any, w: Any, v: Any, inplace: bool = False) -> Any:
    """v2's ``erase`` kernel for Pillow images."""
    late = begin(image)
    params = None if late is None else erased((i, j, h, w), v, (len(late.getbands()), late.height, late.width))
    if late is None or params is None:
        return original(image, i, j, h, w, v, inplace)
    return as_new(late.then("erase_image", params))


def _permute_channels(original: Function, image: Any, permutation: Any) -> Any:
    """v2's ``permute_channels`` kernel for Pillow images."""
    late = begin(image)
    if late is None or late.mode != "RGB" or sorted(permutation) != [0, 1, 2]:
        return original(image, permutation)
    return as_new(late.then("permute_channels", (tuple(int(channel) for channel in permutation),)))


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
