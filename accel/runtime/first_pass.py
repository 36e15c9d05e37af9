"""The first pass of images that have no structure in common, run for all of them by compiled code.

Images whose colours are changed in a random order are such: they begin alike, with a crop, a resize and a flip.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from accel.backend import Backend
from accel.ops import OPS
from accel.ops.row import ResampleOp
from accel.planning import columns
from accel.planning.order import Steps, parts
from accel.recipes.recipe import Recipe
from accel.recipes.rows import Rows
from accel.recipes.sources import PicturesApart
from accel.runtime.memo.results import Run

_STEPS = frozenset({"convert", "crop", "hflip", "vflip", "pad"})  # besides one resize


def together(recipes: Sequence[Recipe], backend: Backend, run: Run) -> Sequence[Recipe]:
    """Replace the images' sources and first steps by pixels, made by one plan.

    They are returned as they are if they do not begin alike, a later step shows only a part of what that pass makes, or
    one cannot be decoded, which is raised later.
    """
    if len(recipes) < _LEAST or not backend.runs_apart:
        return recipes
    split = [parts(recipe.steps) for recipe in recipes]
    counts = [_length(on_pixels) for on_pixels, _, _ in split]
    if not all(counts):
        return recipes
    firsts = [on_pixels[:count] for (on_pixels, _, _), count in zip(split, counts, strict=True)]
    first = Rows.of([Recipe(recipe.source, first) for recipe, first in zip(recipes, firsts, strict=True)])
    planned = None if first is None else columns.plan_apart(first)
    if planned is None:
        return recipes
    sizes = planned.columns.parts[:, 1:].tolist()
    for (on_pixels, _, _), count, (height, width) in zip(split, counts, sizes, strict=True):
        if any(OPS[name].size((height, width), params) != (height, width) for name, params in on_pixels[count:]):
            return recipes
    selection, uses = recipes[0].source.selection, [recipe.source.uses for recipe in recipes]
    values = run(selection, [planned])[0]
    if not isinstance(values, torch.Tensor):
        for recipe, times in zip(recipes, uses, strict=True):
            recipe.source.uses = times
        return recipes
    mode = "RGB" if planned.columns.channels == 3 else "L"
    sources = PicturesApart(values.numpy(), planned.columns.parts, mode, "images of a batch", selection)
    return [
        Recipe(source, (*on_pixels[count:], *on_values, *tail))
        for source, (on_pixels, on_values, tail), count in zip(sources, split, counts, strict=True)
    ]


_LEAST = 4
"""The least number of images for which this takes less time."""


def _length(steps: Steps) -> int:
    """The number of first steps that one pass may have."""
    resized = False
    for number, (name, _) in enumerate(steps):
        if name not in _STEPS:
            if resized or not isinstance(OPS[name], ResampleOp):
                return number
            resized = True
    return len(steps)
