"""Kernels of ``torchvision.transforms.v2.functional`` for Pillow images that v1's functions know nothing of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchvision.transforms import InterpolationMode

from accel.codec.header import LARGEST_SIDE
from accel.hooks.patch import Body
from accel.hooks.recording import images
from accel.hooks.recording.images import as_new
from accel.hooks.recording.tensor_values import erased
from accel.lazy.from_pixels import begin

Function = Callable[..., Any]


def _resized_crop(original: Function) -> Function:
    """v2's ``resized_crop`` kernel for Pillow images."""

    def resized_crop(
        image: Any, top: Any, left: Any, height: Any, width: Any, size: Any, interpolation: Any = "bilinear"
    ) -> Any:
        mode = _MODES.get(interpolation) if isinstance(interpolation, str) else interpolation
        late = images.resized_crop(image, top, left, height, width, size, mode)
        return original(image, top, left, height, width, size, interpolation) if late is None else late

    return resized_crop


_MODES = {mode.value: mode for mode in InterpolationMode}


def _jpeg(original: Function) -> Function:
    """v2's ``jpeg`` kernel for Pillow images."""

    def jpeg(image: Any, quality: Any) -> Any:
        takes = type(quality) is int and 1 <= quality <= 100 and max(image.size) <= LARGEST_SIDE
        late = begin(image) if takes else None
        return original(image, quality) if late is None else late.then("jpeg", (quality,))

    return jpeg


def _erase(original: Function) -> Function:
    """v2's ``erase`` kernel for Pillow images."""

    def erase(image: Any, i: Any, j: Any, h: Any, w: Any, v: Any, inplace: bool = False) -> Any:
        late = begin(image)
        params = None if late is None else erased((i, j, h, w), v, (len(late.getbands()), late.height, late.width))
        if late is None or params is None:
            return original(image, i, j, h, w, v, inplace)
        return as_new(late.then("erase_image", params))

    return erase


def _permute_channels(original: Function) -> Function:
    """v2's ``permute_channels`` kernel for Pillow images."""

    def permute_channels(image: Any, permutation: Any) -> Any:
        late = begin(image)
        if late is None or late.mode != "RGB" or sorted(permutation) != [0, 1, 2]:
            return original(image, permutation)
        return as_new(late.then("permute_channels", (tuple(int(channel) for channel in permutation),)))

    return permute_channels


_V2 = "torchvision.transforms.v2.functional"
PATCHES = (
    Body(f"{_V2}._geometry._resize_image_pil", images.by_methods),
    Body(f"{_V2}._geometry._resized_crop_image_pil", _resized_crop),
    Body(f"{_V2}._geometry._elastic_image_pil", images.elastic(2)),
    Body(f"{_V2}._misc._gaussian_blur_image_pil", images.gaussian_blur(2)),
    Body(f"{_V2}._augment._jpeg_image_pil", _jpeg),
    Body(f"{_V2}._augment._erase_image_pil", _erase),
    Body(f"{_V2}._color._permute_channels_image_pil", _permute_channels),
)
