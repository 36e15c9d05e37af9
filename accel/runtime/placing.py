"""Images computed and put in their places in one tensor (``accel.planning.places``)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from accel.backend import HostBackend, host_of
from accel.errors import DecodeError, only
from accel.ops import OPS, shape_after
from accel.planning import values
from accel.planning.order import parts
from accel.planning.places import Place
from accel.recipes.options import Selection
from accel.recipes.recipe import Recipe, Source, Step
from accel.runtime import compute, first_pass, task
from accel.runtime.memo import cached
from accel.system import counters, fork, memory

ImageShape = tuple[int, int, int]
_PIXELS: tuple[Step, ...] = (("pil_to_tensor", ()),)


_between = memory.Results()  # for pixels, so that the memory of results stays for results
fork.register(in_child=_between.__init__)  # type: ignore[misc]


class Placed(NamedTuple):
    """An image, the size (channels, height, width) of the recipe's result, and its place."""

    recipe: Recipe
    size: ImageShape
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
        each.recipe if table is None else Recipe(each.recipe.source, (*on_pixels, *_PIXELS))
        for each, (on_pixels, *_), table in zip(placed, split, tables, strict=True)
    ]
    images = _computed(recipes, placed, selection)
    jobs = []
    for image, table, each in zip(images, tables, placed, strict=True):
        if table is None:
            each.place.put(image, out)
        else:
            pixels = image.permute(1, 2, 0).numpy() if isinstance(image, torch.Tensor) else image
            jobs.append((pixels, table, each.place))
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


def _computed(recipes: Sequence[Recipe], placed: Sequence[Placed], selection: Selection) -> list[Any]:
    """The results of recipes, each computed once, in as few plans as possible.

    A tensor [channels, height, width] or, of uint8 pixels, perhaps an array [height, width, channels].
    """
    sizes: dict[Any, tuple[Recipe, ImageShape]] = {}
    keys = []
    for recipe, each in zip(recipes, placed, strict=True):
        keys.append((id(recipe.source), *[id(step) if OPS[step[0]].holds_tensors else step for step in recipe.steps]))
        sizes.setdefault(keys[-1], (recipe, each.size))
    unique, made = [recipe for recipe, _ in sizes.values()], dict[Any, Any]()
    run = partial(compute.on_host, allocate=_between.empty)
    together = [] if cached.in_use else first_pass.together(unique, host_of(selection), run)
    batches: dict[Any, list[Any]] = {}
    for key, recipe, (before, size) in zip(sizes, together or unique, sizes.values(), strict=True):
        if recipe is not before and recipe.steps == _PIXELS:  # nothing is left to do
            channels, height, width = size
            counters.images({before.source.way: 1})
            made[key] = np.frombuffer(recipe.source.data, np.uint8).reshape(height, width, channels)
        else:
            batches.setdefault((size, recipe.steps[-1]), []).append(key)
    images = [(tuple([sizes[key][0] for key in batch]), True) for batch in batches.values()]
    results = compute.several(images, _between.empty)
    for batch, result in zip(batches.values(), results, strict=True):
        if isinstance(result, DecodeError):
            raise _located(result, [sizes[key][0].source for key in batch], placed)
        made.update(zip(batch, only([result]), strict=True))
    return [made[key] for key in keys]


def _located(error: DecodeError, sources: Sequence[Source], placed: Sequence[Placed]) -> DecodeError:
    """The error of one of these sources, with its position among all that are placed, each counted once."""
    if error.position is None:
        return error
    source, every = sources[error.position], list(dict.fromkeys(id(each.recipe.source) for each in placed))
    return compute.located(error, source, every.index(id(source)), len(every))


def on_device(placed: Sequence[Placed], device: torch.device, out: torch.Tensor) -> None:
    """Compute the images on an accelerator backend's device and put them in ``out`` there; waits for nothing."""
    batches: dict[Any, list[Placed]] = {}
    for each in placed:
        batches.setdefault(each.size, []).append(each)
    for batch in batches.values():
        try:
            images = task.compute_now([each.recipe for each in batch], False, device)
        except DecodeError as error:
            raise _located(error, [each.recipe.source for each in batch], placed) from error.__cause__
        for each, image in zip(batch, images, strict=True):
            each.place.put(image, out)
