"""Lazy tensors of one image added up with weights, as AugMix does: ``mix = w * image; mix.add_(v * augmented)``.

AugMix views the image as a batch of one meanwhile and changes neither of the two in place, so it stays lazy; for other
callers the values are computed. All summands are made of the same source, and their sum is one more lazy tensor.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from accel.lazy.tensor_base import LazyTensorBase, is_lazy
from accel.ops.tensors import DTYPES
from accel.planning.order import has_kernels
from accel.recipes.recipe import Branch, Recipe
from accel.system.caller import caller

_POLICIES = ("torchvision.transforms.autoaugment.", "torchvision.transforms.v2._auto_augment.")


def view(tensor: LazyTensorBase, *size: Any, **kwargs: Any) -> Any:
    """``torch.Tensor.view`` of a lazy image [C, H, W] as a batch of one, or back."""
    lazy = tensor.lazy
    if kwargs or lazy.dtype not in DTYPES or not caller().startswith(_POLICIES):
        return NotImplemented
    shape = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (list, tuple)) else size
    if len(lazy.recipes) > 1 or lazy.after or any(type(length) is not int for length in shape):
        return NotImplemented
    if shape == lazy.lead + lazy.shape:
        return tensor
    if shape[-3:] != lazy.shape or prod(shape[:-3]) != 1 or len(shape) > 4:
        return NotImplemented
    return tensor.of(lazy.recipes, shape[:-3], lazy.shape, lazy.dtype, lazy.layout)


def multiplied(one: Any, other: Any) -> Any:
    """A lazy image times a plain tensor of one float32 element; NotImplemented for other operands."""
    tensor, weight = (one, other) if is_lazy(one) else (other, one)
    if not is_lazy(tensor) or type(weight) is not torch.Tensor or len(tensor.lazy.recipes) > 1 or tensor.lazy.after:
        return NotImplemented
    if weight.shape != (1,) * tensor.ndim or weight.dtype != torch.float32 or not weight.is_cpu:
        return NotImplemented
    step = "weighted", (weight.item(), weight.dtype)
    return tensor.then(step, dtype=torch.promote_types(weight.dtype, tensor.lazy.dtype), kernel=True)


def add_in_place(tensor: LazyTensorBase, other: Any, *, alpha: Any = 1) -> Any:
    """Add a lazy summand of the same source to a weighted image; NotImplemented for other operands."""
    if type(tensor) is not type(other) or not is_lazy(other) or alpha != 1 or tensor.lazy.aliased:
        return NotImplemented
    lazy, more = tensor.lazy, other.lazy
    same = (lazy.lead, lazy.shape, lazy.dtype) == (more.lead, more.shape, more.dtype)
    if not same or len(lazy.recipes) > 1 or lazy.after or more.after or lazy.part is not None:
        return NotImplemented
    (recipe,), (summand,) = lazy.recipes, more.recipes
    if recipe.source is not summand.source or not has_kernels(recipe.steps):
        return NotImplemented
    lazy.recipes = (Recipe(recipe.source, (*recipe.steps, ("plus", (Branch(summand.steps),)))),)
    return tensor
