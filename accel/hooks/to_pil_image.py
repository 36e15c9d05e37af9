"""Late tensors as late images again: ``to_pil_image``.

Where each value is a function of one level that is a table. Else the image begins with pixels that are late themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from accel.codec.header import Raw
from accel.lazy.base import LateTensor, is_late
from accel.lazy.image import LazyImage
from accel.planning import values
from accel.recipe import Recipe, Source

Function = Callable[..., Any]


def to_pil_image(original: Function) -> Function:
    """``torchvision.transforms.functional.to_pil_image``."""

    def to_pil_image(pic: Any, mode: Any = None) -> Any:
        late = is_late(pic) and isinstance(pic, LateTensor) and not pic.late.lead
        image = _as_image(pic) if late and mode in (None, "L" if pic.late.shape[0] == 1 else "RGB") else None
        return original(pic, mode) if image is None else image

    return to_pil_image


def _as_image(tensor: LateTensor) -> LazyImage | None:
    """A late tensor's values as a late image; None where they are no 8-bit levels."""
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
