"""``torchvision.transforms.functional``: functions that have no counterpart for Pillow images alone.

A function's checks are made when it is recorded, by torchvision's own code where that is cheap.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torchvision.transforms.functional import pil_modes_mapping

from accel.codec.header import Raw
from accel.hooks.patch import Body, Function
from accel.hooks.recording import images, tensor_values
from accel.hooks.recording.tensors import by_v1
from accel.lazy.from_pixels import lazy_image
from accel.lazy.image import LazyImage, LazyPlainImage
from accel.lazy.tensor import LazyTensor
from accel.lazy.tensor_base import LazyTensorBase, is_lazy
from accel.planning import order, values
from accel.recipe import Recipe, Source


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
        return LazyPlainImage.make(Recipe(pixels), mode, size, {})
    image: LazyImage = LazyPlainImage.make(Recipe(source, pixel_steps), mode, size, {})
    if bool((levels != torch.arange(256)).any()):
        image = image.then("point", (levels.numpy().tobytes(),))
    return image


def _levels(table: torch.Tensor) -> torch.Tensor | None:
    """The levels that values become; None where what becomes of them depends on the machine."""
    if not table.dtype.is_floating_point:
        return table
    scaled = table.numpy() * 255
    return torch.from_numpy(scaled.astype(np.uint8)) if ((scaled >= 0) & (scaled < 256)).all() else None


_V1 = "torchvision.transforms.functional"
_OF_TENSORS = (tensor_values.convert_image_dtype, tensor_values.normalize, tensor_values.erase)
PATCHES = (
    Body(f"{_V1}.resized_crop", partial(images.resized_crop, pil_modes_mapping)),
    *(Body(f"{_V1}.{function.__name__}", function) for function in (to_tensor, pil_to_tensor, to_pil_image)),
    *(Body(f"{_V1}.{record.__name__}", partial(by_v1, record)) for record in _OF_TENSORS),
)
