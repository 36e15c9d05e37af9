"""Lookup tables of values: the result of a sequence of value ops for each of the 256 uint8 levels, per channel.

The ops act on single values, so running torch itself on 0..255 once gives every result they can have, bit for bit,
whatever the ops; the backends only look up.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch

from accel.ops import tensor_op
from accel.recipes.recipe import Step
from accel.system import arithmetic


class Patch(NamedTuple):
    """A rectangle with given values, ``values`` [channels, height or 1, width or 1], of the final dtype."""

    top: int
    left: int
    height: int
    width: int
    values: torch.Tensor


def table(channels: int, steps: tuple[Step, ...]) -> torch.Tensor:
    """The values of levels 0..255 after ``steps``: [channels, 256], contiguous, of the final dtype.

    Raises:
        Exception: what torchvision raises for such parameters (a zero std, a mean of the wrong length, ...).
    """
    if erases(steps):
        steps = tuple([step for step in steps if step[0] != "erase"])
    return _table(channels, steps)


def erases(steps: tuple[Step, ...]) -> bool:
    """Whether there is an ``erase`` among the steps."""
    return "erase" in [name for name, _ in steps]


def table_and_patches(channels: int, steps: tuple[Step, ...]) -> tuple[torch.Tensor, tuple[Patch, ...]]:
    """The table, and the rectangles that the steps erase, in order, with their values after all later steps."""
    if not erases(steps):
        return _table(channels, steps), ()
    found = []
    for number, (name, params) in enumerate(steps):
        if name == "erase":
            top, left, height, width, value = params
            patch = value.to(table(channels, steps[:number]).dtype).expand(channels, *value.shape[1:])
            with arithmetic.by_default():
                for later, values in steps[number + 1 :]:
                    patch = patch if later == "erase" else tensor_op(later).apply(patch, *values)
            found.append(Patch(top, left, height, width, patch))
    return table(channels, steps), tuple(found)


@lru_cache(maxsize=256)
def _table(channels: int, steps: tuple[Step, ...]) -> torch.Tensor:
    levels = torch.arange(256, dtype=torch.uint8, device="cpu").expand(channels, 1, 256)
    with arithmetic.by_default():
        for name, params in steps:
            levels = tensor_op(name).apply(levels, *params)
    return levels.reshape(channels, 256).contiguous()
