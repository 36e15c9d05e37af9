"""``torchvision.transforms.functional``: functions that have no counterpart for Pillow images alone.

A function's checks are made when it is recorded, by torchvision's own code where that is cheap.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.functional import pil_modes_mapping

from accel.codec.header import Raw
from accel.hooks.patch import Body, Function
from accel.hooks.recording.tensor_values import in_place, is_recorded, numbers, recorded_erase, recorded_value
from accel.lazy.from_pixels import lazy_image
from accel.lazy.image import LazyImage
from accel.lazy.tensor import LazyTensor
from accel.lazy.tensor_base import LazyTensorBase, is_lazy, values_of
from accel.planning import order, values
from accel.recipe import Recipe, Source


def resized_crop(
    original: Function,
    img: Any,
    top: Any,
    left: Any,
    height: Any,
    width: Any,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    antialias: Any = True,
) -> Any:
    """``torchvision.transforms.functional.resized_crop``: its usual form, without the checks on the way."""
    usual = type(interpolation) is InterpolationMode and antialias is not False
    if usual and isinstance(img, LazyImage) and img.recipe is not None:
        lazy = img.crop_and_resize(top, left, height, width, size, pil_modes_mapping[interpolation])
        if lazy is not None:
            return lazy
    return original(img, top, left, height, width, size, interpolation, antialias=antialias)


def to_tensor(original: Function, pic: Any) -> Any:
    lazy = pic if isinstance(pic, LazyImage) and pic.recipe is not None else lazy_image(pic)
    if lazy is None:
        return original(pic)
    dtype = torch.get_default_dtype()
    return lazy.as_tensor(LazyTensor, ("to_tensor", (dtype,)), dtype)


def pil_to_tensor(original: Function, pic: Any) -> Any:
    lazy = lazy_image(pic)
    return original(pic) if lazy is None else lazy.as_uint8_tensor(LazyTensor)


def to_pil_image(original: Function, pic: Any, mode: Any = None) -> Any:
    lazy = is_lazy(pic) and isinstance(pic, LazyTensorBase) and not pic.lazy.lead
    image = _as_image(pic) if lazy and mode in (None, "L" if pic.lazy.shape[0] == 1 else "RGB") else None
    return original(pic, mode) if image is None else image


def _as_image(tensor: LazyTensorBase) -> LazyImage | None:
    """A lazy tensor's values as a lazy image; None where they are no 8-bit levels."""
    lazy = tensor.lazy
    (channels, height, width), dtype = lazy.shape, lazy.dtype
    if channels not in (1, 3) or dtype not in (torch.uint8, torch.float16, torch.float32, torch.float64):
        return None
    mode, size = "RGB" if channels == 3 else "L", (width, height)
    source, steps = lazy.recipes[0]
    pixel_steps, value_steps, kernels = order.parts(steps)
    table = None if kernels or values.erases(value_steps) else values.table(channels, value_steps)
    levels = None if table is None else _levels(table)
    if levels is None:
        origin = Recipe(source, (*steps, ("to_levels", ())))
        pixels = Source(b"", Raw(width, height, mode), f"{source.name}, as a tensor", source.selection, origin=origin)
        return LazyImage.of_recipe(Recipe(pixels), mode, size)
    image = LazyImage.of_recipe(Recipe(source, pixel_steps), mode, size)
    if bool((levels != torch.arange(256)).any()):
        image = image.then("point", (levels.numpy().tobytes(),))
    return image


def _levels(table: torch.Tensor) -> torch.Tensor | None:
    """The levels that values become; None where what becomes of them depends on the machine."""
    if not table.dtype.is_floating_point:
        return table
    scaled = table.numpy() * 255
    return torch.from_numpy(scaled.astype(np.uint8)) if ((scaled >= 0) & (scaled < 256)).all() else None


def convert_image_dtype(original: Function, image: Any, dtype: torch.dtype = torch.float) -> Any:
    if not is_recorded(image) or not isinstance(dtype, torch.dtype):
        return original(image, dtype)
    if image.lazy.dtype == dtype:
        return image
    step = ("convert_image_dtype", (dtype,))
    lazy = recorded_value(image, step, dtype)
    return original(values_of(image), dtype) if lazy is None else lazy


def normalize(original: Function, tensor: Any, mean: Any, std: Any, inplace: bool = False) -> Any:
    if not is_recorded(tensor) or (inplace and tensor.lazy.aliased):
        return original(tensor, mean, std, inplace)
    means, stds = numbers(mean), numbers(std)
    if means is not None and stds is not None:
        lazy = recorded_value(tensor, ("normalize", (means, stds)), tensor.lazy.dtype)
        if lazy is not None and inplace:
            return in_place(tensor, lazy)
        if lazy is not None:
            return lazy
    return original(values_of(tensor), mean, std, inplace)


def erase(original: Function, img: Any, i: Any, j: Any, h: Any, w: Any, v: Any, inplace: bool = False) -> Any:
    takes = is_recorded(img) and not (inplace and img.lazy.aliased)
    lazy = recorded_erase(img, i, j, h, w, v) if takes else None
    if lazy is None:
        return original(img, i, j, h, w, v, inplace)
    return in_place(img, lazy) if inplace else lazy


_V1 = "torchvision.transforms.functional"
PATCHES = tuple(
    Body(f"{_V1}.{function.__name__}", function)
    for function in (resized_crop, to_tensor, pil_to_tensor, to_pil_image, convert_image_dtype, normalize, erase)
)
