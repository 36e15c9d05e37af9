"""Images computed and put in their places in one tensor (``accel.planning.places``)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from accel.backend import HostBackend, host_of
from accel.errors import only
from accel.ops import OPS, shape_after
from accel.planning import values
from accel.planning.order import parts
from accel.planning.places import Place
from accel.recipes.options import Selection
from accel.recipes.recipe import Recipe
from accel.runtime import compute, task


class Placed(NamedTuple):
    """An image, the size (channels, height, width) of the recipe's result, and its place."""

    recipe: Recipe
    size: tuple[int, int, int]
    place: Place


def on_host(placed: Sequence[Placed], selection: Selection, out: torch.Tensor) -> None:
    """Compute the images and put them in ``out``, in one pass from uint8 pixels where all later steps are a table.

    Raises:
        DecodeError: a file cannot be decoded, and its backend's ``on_error`` is "raise".
    """
    placed = _uncropped(placed)
    split = [parts(each.recipe.steps) for each in placed]
    tables = [
        None if after or values.erases(on_values) else values.table(each.size[0], on_values)
        for each, (_, on_values, after) in zip(placed, split, strict=True)
    ]
    recipes = [
        each.recipe if table is None else Recipe(each.recipe.source, (*on_pixels, ("pil_to_tensor", ())))
        for each, (on_pixels, *_), table in zip(placed, split, tables, strict=True)
    ]
    images = _computed(recipes, placed)
    jobs = []
    for image, table, each in zip(images, tables, placed, strict=True):
        if table is None:
            each.place.put(image, out)
        else:
            jobs.append((image, table, each.place))
    host = host_of(selection)
    place = getattr(host, "place", partial(HostBackend.place, host))  # a backend of no class of accel's may lack it
    place(jobs, out)


def _uncropped(placed: Sequence[Placed]) -> list[Placed]:
    """The same, with tiles of one picture as parts of it, so that it is computed once: as a whole."""
    found, tiles = list(placed), dict[Any, list[tuple[int, Placed]]]()
    for number, ((source, steps), size, place) in enumerate(placed):
        on_pixels, on_values, after = parts(steps)
        if after or values.erases(on_values) or not on_pixels or on_pixels[-1][0] != "crop":
            continue
        *before, (_, (top, left, height, width)) = on_pixels
        header = source.header
        whole = shape_after((header.channels, header.height, header.width), *before)
        if 0 <= top <= top + height <= whole[1] and 0 <= left <= left + width <= whole[2]:
            channel, row, column = place.origin
            place = place._replace(origin=(channel, row + top, column + left))
            tile = Placed(Recipe(source, (*before, *on_values)), (size[0], *whole[1:]), place)
            tiles.setdefault((id(source), *before), []).append((number, tile))
    for several in tiles.values():
        if len(several) > 1:
            for number, tile in several:
                found[number] = tile
    return found


def _computed(recipes: Sequence[Recipe], placed: Sequence[Placed]) -> list[torch.Tensor]:
    """The results [channels, height, width] of recipes, each computed once; those of one size are one plan."""
    numbers: dict[tuple[Any, ...], tuple[Any, int]] = {}
    batches: dict[Any, list[Recipe]] = {}
    keys = []
    for recipe, each in zip(recipes, placed, strict=True):
        key = id(recipe.source), tuple([id(step) if OPS[step[0]].holds_tensors else step for step in recipe.steps])
        if key not in numbers:
            kind = each.size, recipe.steps[-1]
            batch = batches.setdefault(kind, [])
            numbers[key] = kind, len(batch)
            batch.append(recipe)
        keys.append(key)
    made = compute.several([(tuple(batch), True) for batch in batches.values()])
    results = {kind: only([result]) for kind, result in zip(batches, made, strict=True)}
    return [results[kind][number] for kind, number in map(numbers.__getitem__, keys)]


def on_device(placed: Sequence[Placed], device: torch.device, out: torch.Tensor) -> None:
    """Compute the images on an accelerator backend's device and put them in ``out`` there; waits for nothing."""
    batches: dict[Any, list[Placed]] = {}
    for each in placed:
        batches.setdefault(each.size, []).append(each)
    for batch in batches.values():
        images = task.compute_now([each.recipe for each in batch], False, device)
        for each, image in zip(batch, images, strict=True):
            each.place.put(image, out)
