"""``torchvision.transforms.v2.functional``: functions that no kernel of its registry stands behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from PIL import Image

from accel.hooks.patch import Body
from accel.hooks.recording.images import pixels
from accel.hooks.tv_tensors import LazyTVImage
from accel.hooks.v2_kernels import to_dtype
from accel.lazy.base import is_late
from accel.lazy.from_pixels import begin
from accel.lazy.tensor import LazyTensor


def to_image(original: Callable[..., Any]) -> Callable[..., Any]:
    """``torchvision.transforms.v2.functional.to_image``, on late images and tensors."""

    def to_image(inpt: Any) -> Any:
        image = begin(inpt) if isinstance(inpt, Image.Image) else None
        if image is not None:
            return pixels(LazyTVImage, image)
        return inpt.as_late(LazyTVImage) if type(inpt) is LazyTensor and is_late(inpt) else original(inpt)

    return to_image


def convert_image_dtype(original: Callable[..., Any]) -> Callable[..., Any]:
    """``torchvision.transforms.v2.functional.convert_image_dtype``."""

    def convert_image_dtype(image: Any, dtype: Any = torch.float32) -> Any:
        late = to_dtype(image, dtype, True) if is_late(image) else None
        return original(image, dtype) if late is None else late

    return convert_image_dtype


PATCHES = (
    Body("torchvision.transforms.v2.functional.to_image", to_image),
    Body("torchvision.transforms.v2.functional._misc.convert_image_dtype", convert_image_dtype),
)
