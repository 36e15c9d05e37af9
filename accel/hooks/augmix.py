"""torchvision's ``AugMix``: its views of an image as a batch of one, and back, stay lazy.

It replaces nothing: it adds to what lazy tensors record. What AugMix does with them changes neither
of the two in place; of anybody else's the values are computed. ``accel.lazy.mixing`` adds the images up.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from accel.hooks.tv_tensors import LazyTVImage, as_pure_tensor
from accel.lazy.base import LateTensor
from accel.lazy.tensor import LazyTensor
from accel.ops.kernels import DTYPES
from accel.system.caller import caller

_POLICIES = ("torchvision.transforms.autoaugment.", "torchvision.transforms.v2._auto_augment.")


def view(tensor: LateTensor, *size: Any) -> Any:
    """``torch.Tensor.view`` of a lazy image [C, H, W] as a batch of one, or back."""
    late = tensor.late
    if late.dtype not in DTYPES or not caller().startswith(_POLICIES):
        return NotImplemented
    wanted = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (list, tuple)) else size
    if len(late.recipes) > 1 or late.after or any(type(length) is not int for length in wanted):
        return NotImplemented
    if wanted == late.lead + late.shape:
        return tensor
    if wanted[-3:] != late.shape or prod(wanted[:-3]) != 1 or len(wanted) > 4:
        return NotImplemented
    return tensor.of(late.recipes, wanted[:-3], late.shape, late.dtype, late.interleaved)


for _function in (torch.Tensor.view, torch.Tensor.reshape):
    LazyTensor.handlers[_function] = view
    LazyTVImage.handlers[_function] = as_pure_tensor(view)
