"""Parts of a lazy batch: its images, by index or by iteration, and slices of it; an image as a batch of one.

Like torch's they are views: a part shares its values with the batch, which is computed as a whole when one of its parts
is first used. A step on a part makes a new lazy tensor, which needs nothing else of the batch.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any, TypeVar

import torch

from accel.lazy.batch import Whole
from accel.lazy.tensor_base import LazyTensorBase
from accel.ops import tensor_op
from accel.recipes.recipe import Recipe
from accel.recipes.rows import then

T = TypeVar("T", bound=LazyTensorBase)


def item(batch: LazyTensorBase, index: Any) -> Any:
    """``batch[index]`` for an int or a slice; NotImplemented for other indices, and if the batch cannot be divided."""
    if index is None:
        return unsqueeze(batch, 0)
    lazy = batch.lazy
    if not lazy.lead or not _can_be_divided(batch):
        return NotImplemented
    length = lazy.lead[0]
    if isinstance(index, slice):
        try:
            chosen = range(length)[index]
        except (TypeError, ValueError):
            return NotImplemented
        return _part(batch, chosen, index) if chosen.step == 1 and len(chosen) else NotImplemented  # by its strides
    if isinstance(index, (bool, torch.Tensor)):
        return NotImplemented
    try:
        number = operator.index(index)
    except TypeError:
        return NotImplemented
    return _part(batch, number % length, index) if -length <= number < length else NotImplemented


def unbind(batch: LazyTensorBase, dim: int = 0) -> Any:
    """``batch.unbind()`` along the first axis, which iteration over a batch calls; else NotImplemented."""
    if dim != 0 or not batch.lazy.lead or not _can_be_divided(batch):
        return NotImplemented
    return tuple([_part(batch, number, number) for number in range(batch.lazy.lead[0])])


def unsqueeze(tensor: LazyTensorBase, dim: int) -> Any:
    """``tensor.unsqueeze(0)``, a batch of one; else NotImplemented."""
    if dim != 0 or not _can_be_divided(tensor) or tensor.lazy.after:
        return NotImplemented
    lazy = tensor.lazy
    lead, offset = (1, *lazy.lead), int(tensor.storage_offset())
    return _view(tensor, tensor.of(lazy.recipes, lead, lazy.shape, lazy.dtype, lazy.layout, offset=offset), None)


def of_class(tensor: LazyTensorBase, kind: type[T]) -> T | None:
    """A lazy tensor of another class with the same memory; None if that must be computed."""
    return _view(tensor, tensor.as_lazy(kind), ...) if _can_be_divided(tensor) else None


def _can_be_divided(batch: LazyTensorBase) -> bool:
    """Whether the values will be computed in this process, each image's from its own recipe alone."""
    lazy = batch.lazy
    busy = lazy.member is not None or lazy.part is not None
    return not busy and all(tensor_op(name).elementwise and name != "contiguous" for name, _ in lazy.after)


def _part(batch: LazyTensorBase, chosen: int | range, index: Any) -> LazyTensorBase:
    lazy = batch.lazy
    inner = lazy.lead[1:]
    each = prod(inner)
    numbers = (chosen,) if isinstance(chosen, int) else chosen
    recipes: Sequence[Recipe] = tuple(
        [recipe for number in numbers for recipe in lazy.recipes[number * each : (number + 1) * each]]
    )
    if lazy.after:
        recipes = then(recipes, lazy.after)
    lead = inner if isinstance(chosen, int) else (len(chosen), *inner)
    offset = int(batch.storage_offset()) + numbers[0] * batch.stride(0)
    return _view(batch, batch.of(recipes, lead, lazy.shape, lazy.dtype, lazy.layout, offset=offset), index)


def _view(of: LazyTensorBase, part: T, index: Any) -> T:
    part.lazy.progress = Whole(of, of.lazy, index)
    part.lazy.aliased = of.lazy.aliased = True
    return part
