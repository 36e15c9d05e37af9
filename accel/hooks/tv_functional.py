"""``torchvision.transforms.functional``: functions that have no counterpart for Pillow images alone.

A function's checks are made when it is recorded, by torchvision's own code where that is cheap.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torchvision.transforms import InterpolationMode

from accel.codec.header import Raw
from accel.hooks.patch import Body, Function
from accel.hooks.recording import images
from accel.hooks.recording.tensor_values import in_place, is_recorded, numbers, recorded_erase, recorded_value
from accel.lazy.base import LateTensor, is_late, values_of
from accel.lazy.from_pixels import begin
from accel.lazy.image import LazyImage
from accel.lazy.tensor import LazyTensor
from accel.planning import values
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
    if type(interpolation) is InterpolationMode and antialias is not False:
        late = images.resized_crop(img, top, left, height, width, size, interpolation)
        if late is not None:
            return late
    return original(img, top, left, height, width, size, interpolation, antialias=antialias)


def to_tensor(original: Function, pic: Any) -> Any:
    """``torchvision.transforms.functional.to_tensor``."""
    late = begin(pic)
    if late is None:
        return original(pic)
    dtype = torch.get_default_dtype()
    return images.tensor(LazyTensor, late, ("to_tensor", (dtype,)), dtype)


def pil_to_tensor(original: Function, pic: Any) -> Any:
    """``torchvision.transforms.functional.pil_to_tensor``."""
    late = begin(pic)
    return original(pic) if late is None else images.pixels(LazyTensor, late)


def to_pil_image(original: Function, pic: Any, mode: Any = None) -> Any:
    """``torchvision.transforms.functional.to_pil_image``."""
    late = is_late(pic) and isinstance(pic, LateTensor) and not pic.late.lead
    image = _as_image(pic) if late and mode in (None, "L" if pic.late.shape[0] == 1 else "RGB") else None
    return original(pic, mode) if image is None else image


def _as_image(tensor: LateTensor) -> LazyImage | None:
    """A lazy tensor's values as a lazy image; None where they are no 8-bit levels."""
    late = tensor.late
    (channels, height, width), dtype = late.shape, late.dtype
    if channels not in (1, 3) or dtype not in (torch.uint8, torch.float16, torch.float32, torch.float64):
        return None
    mode, size = "RGB" if channels == 3 else "L", (width, height)
    source, steps, value_steps, kernels = late.recipes[0]
    table = None if kernels or any(name == "erase" for name, _ in value_steps) else values.table(channels, value_steps)
    levels = None if table is None else _levels(table)
    if levels is None:
        origin = Recipe(source, steps, value_steps, (*kernels, ("to_levels", ())))
        pixels = Source(b"", Raw(width, height, mode), f"{source.name}, as a tensor", source.selection, origin=origin)
        return LazyImage.of_recipe(Recipe(pixels), mode, size)
    image = LazyImage.of_recipe(Recipe(source, steps), mode, size)
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
    """``torchvision.transforms.functional.convert_image_dtype``."""
    if not is_recorded(image) or not isinstance(dtype, torch.dtype):
        return original(image, dtype)
    if image.late.dtype == dtype:
        return image
    step = ("convert_image_dtype", (dtype,))
    late = recorded_value(image, step, dtype)
    return original(values_of(image), dtype) if late is None else late


def normalize(original: Function, tensor: Any, mean: Any, std: Any, inplace: bool = False) -> Any:
    """``torchvision.transforms.functional.normalize``."""
    if not is_recorded(tensor) or (inplace and tensor.late.aliased):
        return original(tensor, mean, std, inplace)
    means, stds = numbers(mean), numbers(std)
    if means is not None and stds is not None:
        late = recorded_value(tensor, ("normalize", (means, stds)), tensor.late.dtype)
        if late is not None and inplace:
            return in_place(tensor, late)
        if late is not None:
            return late
    return original(values_of(tensor), mean, std, inplace)


def erase(original: Function, img: Any, i: Any, j: Any, h: Any, w: Any, v: Any, inplace: bool = False) -> Any:
    """``torchvision.transforms.functional.erase``."""
    takes = is_recorded(img) and not (inplace and img.late.aliased)
    late = recorded_erase(img, i, j, h, w, v) if takes else None
    if late is None:
        return original(img, i, j, h, w, v, inplace)
    return in_place(img, late) if inplace else late


_V1 = "torchvision.transforms.functional"
PATCHES = (
    Body(f"{_V1}.resized_crop", resized_crop),
    Body(f"{_V1}.to_tensor", to_tensor),
    Body(f"{_V1}.pil_to_tensor", pil_to_tensor),
    Body(f"{_V1}.to_pil_image", to_pil_image),
    Body(f"{_V1}.convert_image_dtype", convert_image_dtype),
    Body(f"{_V1}.normalize", normalize),
    Body(f"{_V1}.erase", erase),
    Body(f"{_V1}.gaussian_blur", images.gaussian_blur(1)),
    Body(f"{_V1}.elastic_transform", images.elastic(1)),
)
