"""torchvision's ``AugMix``: its views of an image as a batch of one, and back, stay lazy.

It replaces nothing: it adds to what lazy tensors record. What AugMix does with them changes neither
of the two in place; of anybody else's the values are computed. ``accel.lazy.mixing`` adds the images up.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from accel.hooks.tv_tensors import LazyTVImage, as_pure_tensor
from accel.lazy.tensor import LazyTensor
from accel.lazy.tensor_base import LazyTensorBase
from accel.ops.tensors import DTYPES
from accel.system.caller import caller

_POLICIES = ("torchvision.transforms.autoaugment.", "torchvision.transforms.v2._auto_augment.")


def view(tensor: LazyTensorBase, *size: Any) -> Any:
    """``torch.Tensor.view`` of a lazy image [C, H, W] as a batch of one, or back."""
    lazy = tensor.lazy
    if lazy.dtype not in DTYPES or not caller().startswith(_POLICIES):
        return NotImplemented
    wanted = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (list, tuple)) else size
    if len(lazy.recipes) > 1 or lazy.after or any(type(length) is not int for length in wanted):
        return NotImplemented
    if wanted == lazy.lead + lazy.shape:
        return tensor
    if wanted[-3:] != lazy.shape or prod(wanted[:-3]) != 1 or len(wanted) > 4:
        return NotImplemented
    return tensor.of(lazy.recipes, wanted[:-3], lazy.shape, lazy.dtype, lazy.interleaved)


for _function in (torch.Tensor.view, torch.Tensor.reshape):
    LazyTensor.handlers[_function] = view
    LazyTVImage.handlers[_function] = as_pure_tensor(view)
