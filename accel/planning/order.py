"""The order of steps: a recipe has them as they were recorded; a plan runs first those on pixels, then those on single
values, as a table, and then torchvision's own functions on the results.

So a step on pixels that is recorded on a tensor is moved ahead of ("leads") the earlier steps on values, which is
allowed where the result is the same:

- no step leads values that were put in (``erase``), or a function that torchvision runs;
- a step that only shows existing pixels in other places leads all other steps, since what becomes of a level does not
  depend on its place;
- a step that makes new levels, or brings in a colour, leads no steps but ``pil_to_tensor``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch

from accel.ops import OPS
from accel.ops.row import IndexOp, KernelOp, PatchOp, Size, TensorOp, ValueOp
from accel.recipes.recipe import Recipe, Step
from accel.recipes.rows import Rows, Structure

Steps = tuple[Step, ...]

_ON_VALUES = {op.name for op in OPS.values() if isinstance(op, TensorOp)}
_KERNELS = {op.name for op in OPS.values() if isinstance(op, KernelOp)}
_DRAWN = {op.name for op in OPS.values() if isinstance(op, ValueOp) and op.drawn}
_LATER = _KERNELS | _DRAWN
_STAY = _KERNELS | {op.name for op in OPS.values() if isinstance(op, PatchOp)}


def parts(steps: Steps) -> tuple[Steps, Steps, Steps]:
    """Split a recipe's steps: those on pixels, those on single values, and from the first that torchvision runs on."""
    pixels: list[Step] = []
    values: list[Step] = []
    for step in steps:
        name = step[0]
        if name not in _ON_VALUES:
            pixels.append(step)
        elif name in _LATER and (name in _KERNELS or _are_floats(values)):
            return tuple(pixels), tuple(values), steps[len(pixels) + len(values) :]
        else:
            values.append(step)
    return tuple(pixels), tuple(values), ()


def has_kernels(steps: Steps) -> bool:
    """Whether torchvision runs some of a recipe's steps."""
    for step in steps:
        if step[0] in _LATER:
            return step[0] in _KERNELS or bool(parts(steps)[2])
    return False


def has_tail(recipes: Sequence[Recipe]) -> bool:
    """Whether the images need more than a plan: torchvision's functions, or other lazy pixels first."""
    if isinstance(recipes, Rows):
        return _have_kernels(recipes.structure) or recipes.of_lazy_pixels()
    return any(recipe.source.origin is not None or has_kernels(recipe.steps) for recipe in recipes)


@lru_cache(maxsize=256)
def _have_kernels(structure: Structure) -> bool:
    return has_kernels(tuple([(form.name, form.params) for form in structure.forms]))


def is_kernel(name: str, dtype: torch.dtype) -> bool:
    """Whether torchvision runs a step on values of this dtype, whatever comes before it."""
    return name in _KERNELS or (name in _DRAWN and dtype.is_floating_point)


def _are_floats(values: list[Step]) -> bool:
    dtypes = [params[0] for _, params in values if params and isinstance(params[0], torch.dtype)]
    return bool(dtypes) and dtypes[-1].is_floating_point


def may_lead(new: Steps, steps: Steps, size: Size) -> bool:
    """Whether new steps on pixels may lead those of a tensor whose images are of this (height, width)."""
    are_pixels = True
    for name, _ in steps:
        if name in _ON_VALUES and name != "pil_to_tensor":
            if name in _STAY or (name in _DRAWN and has_kernels(steps)):
                return False
            are_pixels = False
    return are_pixels or False not in [shows(step, size) for step in new]


def shows(step: Step, size: Size) -> bool:
    """Whether a step only shows some of the existing pixels of an image of this (height, width)."""
    op = OPS[step[0]]
    return isinstance(op, IndexOp) and (op.fill is None or not op.fills(size, step[1]))
