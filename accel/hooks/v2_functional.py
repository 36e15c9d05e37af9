"""``torchvision.transforms.v2.functional``: its kernels for Pillow images, and what has no kernels.

Other kernels for Pillow images are v1's functions (``tv_functional_pil``), or have a row of the table that names them.
"""

from __future__ import annotations

from typing import Any

import torch
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.functional import pil_modes_mapping

from accel.hooks.patch import Body, Function
from accel.hooks.recording import images
from accel.hooks.tv_tensors import LazyTVImage
from accel.hooks.v2_kernels import to_dtype
from accel.lazy.from_pixels import lazy_image
from accel.lazy.image import LazyImage
from accel.lazy.tensor import LazyTensor
from accel.lazy.tensor_base import is_lazy


def to_image(original: Function, inpt: Any) -> Any:
    """``torchvision.transforms.v2.functional.to_image``, on lazy images and tensors."""
    image = lazy_image(inpt) if isinstance(inpt, Image.Image) else None
    if image is not None:
        return image.as_uint8_tensor(LazyTVImage)
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
    lazy = None
    if isinstance(image, LazyImage) and image.recipe is not None and type(mode) is InterpolationMode:
        lazy = image.crop_and_resize(top, left, height, width, size, pil_modes_mapping[mode])
    return original(image, top, left, height, width, size, interpolation) if lazy is None else lazy


_MODES = {mode.value: mode for mode in InterpolationMode}


_V2 = "torchvision.transforms.v2.functional"
PATCHES = (
    Body(f"{_V2}.to_image", to_image),
    Body(f"{_V2}._misc.convert_image_dtype", convert_image_dtype),
    Body(f"{_V2}._geometry._resize_image_pil", images.by_methods),
    Body(f"{_V2}._geometry._resized_crop_image_pil", _resized_crop),
)
