"""Parts of a late batch: its images, by index or one after another, and slices of it; an image as a batch of one.

As torch's they are views: the values of a part are those of the batch, which is computed as a whole when the first of
them is asked for. A step on a part makes a late tensor of its own, of which nothing else need be computed.
"""

from __future__ import annotations

import operator
from math import prod
from typing import Any

import torch

from accel.lazy.base import LateTensor
from accel.ops import OPS
from accel.recipe import Recipe


def item(batch: LateTensor, index: Any) -> Any:
    """``batch[index]`` for an int or a slice; NotImplemented for other indices, and where the batch is under way."""
    late = batch.late
    if not late.lead or not _can_be_divided(batch):
        return NotImplemented
    length = late.lead[0]
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


def unbind(batch: LateTensor, dim: int = 0) -> Any:
    """``batch.unbind()`` along the first axis, which is how a batch is iterated over."""
    if dim != 0 or not batch.late.lead or not _can_be_divided(batch):
        return NotImplemented
    return tuple([_part(batch, number, number) for number in range(batch.late.lead[0])])


def unsqueeze(tensor: LateTensor, dim: int) -> Any:
    """``tensor.unsqueeze(0)``: a batch of one."""
    if dim != 0 or not _can_be_divided(tensor) or tensor.late.after:
        return NotImplemented
    late = tensor.late
    lead, offset = (1, *late.lead), int(tensor.storage_offset())
    return _view(tensor, tensor.of(late.recipes, lead, late.shape, late.dtype, late.interleaved, offset=offset), None)


def _can_be_divided(batch: LateTensor) -> bool:
    """Whether its values are still to be computed here, each image's from its own recipe alone."""
    late = batch.late
    busy = late.member is not None or late.part is not None or late.group is not None
    return not busy and all(OPS[name].elementwise for name, _ in late.after)


def _part(batch: LateTensor, chosen: int | range, index: Any) -> LateTensor:
    late = batch.late
    inner = late.lead[1:]
    each = prod(inner)
    numbers = (chosen,) if isinstance(chosen, int) else chosen
    recipes = tuple([recipe for number in numbers for recipe in late.recipes[number * each : (number + 1) * each]])
    if late.after:
        recipes = tuple([Recipe(*recipe[:3], recipe.kernels + late.after) for recipe in recipes])
    lead = inner if isinstance(chosen, int) else (len(chosen), *inner)
    offset = int(batch.storage_offset()) + numbers[0] * each * prod(late.shape)
    return _view(batch, batch.of(recipes, lead, late.shape, late.dtype, late.interleaved, offset=offset), index)


def _view(of: LateTensor, part: LateTensor, index: Any) -> LateTensor:
    part.late.view = of.late.view
    part.late.whole = of, of.late, index
    part.late.aliased = of.late.aliased = True
    return part
