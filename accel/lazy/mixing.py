"""Lazy tensors of one image added up with weights, as AugMix does: ``mix = w * image; mix.add_(v * augmented)``.

The image is looked at as a batch of one meanwhile (``accel.hooks.augmix``). All of the summands are made of the same
source, and what they add up to is one more late tensor.
"""

from __future__ import annotations

from typing import Any

import torch

from accel.lazy.base import LateTensor, is_late
from accel.recipe import Branch, Recipe


def multiplied(one: Any, other: Any) -> Any:
    """An image times a tensor of one element."""
    tensor, weight = (one, other) if is_late(one) else (other, one)
    if not is_late(tensor) or type(weight) is not torch.Tensor or not _is_weight(tensor, weight):
        return NotImplemented
    step = "weighted", (weight.item(), weight.dtype)
    return tensor.called(*step, dtype=torch.promote_types(weight.dtype, tensor.late.dtype))


def _is_weight(tensor: LateTensor, weight: torch.Tensor) -> bool:
    late = tensor.late
    one = len(late.recipes) == 1 and not late.after
    return one and weight.shape == (1,) * tensor.ndim and weight.dtype == torch.float32 and weight.is_cpu


def add_in_place(tensor: LateTensor, other: Any, *, alpha: Any = 1) -> Any:
    """One more summand; of the same image, and weighted before as this one was."""
    if type(tensor) is not type(other) or not is_late(other) or alpha != 1 or tensor.late.aliased:
        return NotImplemented
    late, more = tensor.late, other.late
    same = (late.lead, late.shape, late.dtype) == (more.lead, more.shape, more.dtype)
    if not same or len(late.recipes) > 1 or late.after or more.after or late.part is not None:
        return NotImplemented
    (recipe,), (summand,) = late.recipes, more.recipes
    if recipe.source is not summand.source or not recipe.kernels:
        return NotImplemented
    late.recipes = (Recipe(*recipe[:3], (*recipe.kernels, ("plus", (Branch(*summand[1:]),)))),)
    return tensor
