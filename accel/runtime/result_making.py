"""Making results, most of them for a cache: planning them, keeping them, and beginning recipes with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, groupby
from time import process_time
from typing import NamedTuple

import numpy as np
from torch import Tensor

from accel.backend import Backend
from accel.codec.engines import Pixels
from accel.codec.header import Raw
from accel.options import Selection
from accel.planning import columns
from accel.planning.order import Steps, parts
from accel.planning.plan import Plan, plans_of
from accel.recipe import Recipe, Source
from accel.rows import Pictures, Rows
from accel.runtime import cached
from accel.runtime.result_entries import put, size_of
from accel.runtime.result_pixels import rows_after, rows_before
from accel.sources import PicturesApart, Sources
from accel.system.memory import Key

Run = Callable[[Selection, Sequence[Plan]], list[Tensor | Exception]]
"""Runs plans on a backend, with results on the host."""


class Wanted(NamedTuple):
    """A result to be made: the number of the recipe that it begins, and the recipe of the result itself.

    ``key``: the one to keep it by; None if it is not kept. ``shelf``: its shelf in the cache (``accel.cache.worth``).
    ``raw``: its size and mode. ``made_of``: a recipe of the same pixels, which may begin with a shorter cached result.
    """

    number: int
    before: Recipe
    key: Key | bytes | None
    shelf: int
    raw: Raw
    made_of: Recipe


Begins = Mapping[int, tuple[Source, int]]
"""By the recipes' numbers: the pixels that a recipe begins with, and the number of steps that these replace."""


@lru_cache(maxsize=16)
def strict(selection: Selection, *, indexed: bool = True) -> Selection:
    """The same selection, except that a damaged file is an error, as a black image must not be kept.

    ``indexed``: whether it uses stream indexes.
    """
    options = selection.options
    cache = options.cache if indexed else None
    return selection._replace(options=dataclasses.replace(options, on_error="raise", cache=cache))


def made(
    wanted: list[Wanted], recipes: Sequence[Recipe], backend: Backend, run: Run
) -> list[tuple[Sequence[Wanted], Pixels]]:
    """Make results; return those of each plan, side by side, without those of files that cannot be decoded."""
    wanted.sort(key=lambda each: (each.key is None, each.shelf))
    plans = _plans(wanted, recipes, backend)
    since, selection = process_time(), strict(wanted[0].made_of.source.selection)
    done = run(selection, [each for each, _ in plans])
    _took(wanted, process_time() - since)
    found = [([wanted[number] for number in numbers], values) for (_, numbers), values in zip(plans, done, strict=True)]
    alone = [
        each for several, values in found if len(several) > 1 and not isinstance(values, Tensor) for each in several
    ]
    if alone:  # at least one of these is damaged; the others are kept
        again = run(selection, [plan for each in alone for plan, _ in plans_of([_in_parts(each)], (True,))])
        found += [([each], values) for each, values in zip(alone, again, strict=True)]
    return [
        (own, _in_memory(values)) for own, values in found if isinstance(values, Tensor)
    ]  # for the others, running the recipe will raise the error


def _plans(wanted: Sequence[Wanted], recipes: Sequence[Recipe], backend: Backend) -> list[tuple[Plan, Sequence[int]]]:
    """Interleaved plans of images of any sizes, each with the numbers of the results that it makes."""
    rows = _rows(wanted, recipes)
    if rows is not None:
        planned = columns.plan_apart(rows) if backend.runs_apart else columns.plan(rows, interleaved=True)
        if planned is not None:
            return [(planned, range(len(rows)))]
    return [*plans_of([_in_parts(each) for each in wanted], (True,) * len(wanted))]


def _in_parts(each: Wanted) -> tuple[Source, Steps, Steps, Steps]:
    return each.made_of.source, *parts(each.made_of.steps)


def _in_memory(values: Tensor) -> Pixels:
    """Interleaved pixels as one flat array, in their order in memory."""
    pixels = values.numpy() if values.ndim == 1 else values.permute(0, 2, 3, 1).numpy()
    return pixels.reshape(-1)


def _rows(wanted: Sequence[Wanted], recipes: Sequence[Recipe]) -> Rows | None:
    """The recipes of results as rows; None if they have no structure in common."""
    if isinstance(recipes, Rows) and all(each.made_of is each.before for each in wanted):
        which, lengths = [each.number for each in wanted], [len(each.before.steps) for each in wanted]
        if (rows := rows_before(recipes, which, lengths)) is not None:
            return rows
    return Rows.of([each.made_of for each in wanted])


def _took(wanted: Sequence[Wanted], seconds: float) -> None:
    """Record the time that making all results took, as what they save (less reading them)."""
    cache = cached.of(wanted[0].made_of.source.selection.options)
    sizes: dict[int, int] = {}
    for each in wanted:
        if each.key is not None:
            sizes[each.shelf] = sizes.get(each.shelf, 0) + size_of(each.raw)
    if cache is not None and (whole := sum([size_of(each.raw) for each in wanted])):
        for shelf, own in sizes.items():
            cache.worth.made(shelf, 1e6 * seconds * own / whole, own)


def keep(wanted: Sequence[Wanted], pixels: Pixels) -> None:
    """Keep the results that have keys; the pixels of all lie side by side."""
    for shelf, group in groupby(_places(wanted), lambda each: each[0].shelf):
        own = [(each.before, each.key, each.raw, begin, end) for each, begin, end in group if each.key is not None]
        if own:
            put([each[:3] for each in own], shelf, pixels[own[0][3] : own[-1][4]].data)


def after(
    recipes: Sequence[Recipe], begins: Begins, made: Sequence[tuple[Sequence[Wanted], Pixels]]
) -> Sequence[Recipe]:
    """Let recipes begin with pixels that a cache has, or with results that were made."""
    found = dict(begins)
    for wanted, pixels in made:
        found.update(_begins(wanted, pixels))
    if not found:
        return recipes
    if isinstance(recipes, Rows) and len(found) == len(recipes):
        sources, lengths = zip(*[found[number] for number in range(len(recipes))], strict=True)
        of_all = len(made) == 1 and len(made[0][0]) == len(recipes)
        rows = rows_after(recipes, sources, lengths, _pictures(*made[0], recipes.selection) if of_all else None)
        if rows is not None:
            return rows
    begun = list(recipes)
    for number, (source, length) in found.items():
        on_pixels, on_values, tail = parts(recipes[number].steps)
        begun[number] = Recipe(source, (*on_pixels[length:], *on_values, *tail))
    return begun


def _begins(wanted: Sequence[Wanted], pixels: Pixels) -> Iterator[tuple[int, tuple[Source, int]]]:
    """``Begins`` of results whose pixels lie side by side."""
    for each, begin, end in _places(wanted):
        name, selection = each.before.source.name, each.before.source.selection
        yield each.number, (Source(pixels[begin:end].data, each.raw, name, selection), len(each.before.steps))


def _places(wanted: Sequence[Wanted]) -> Iterator[tuple[Wanted, int, int]]:
    """Where the pixels of each result begin and end, side by side."""
    ends = [0, *accumulate([size_of(each.raw) for each in wanted])]
    return zip(wanted, ends, ends[1:], strict=False)


def _pictures(wanted: Sequence[Wanted], pixels: Pixels, selection: Selection) -> Sources | None:
    """Results of all images as one piece of memory; None if they have several modes."""
    raws, name = {each.raw for each in wanted}, "results that a cache takes"
    if len(raws) == 1 and [each.number for each in wanted] == [*range(len(wanted))]:
        raw = raws.pop()
        shape = len(wanted), raw.height, raw.width, *((3,) if raw.mode == "RGB" else ())
        return Pictures(pixels.reshape(shape), name, selection)
    if len(modes := {raw.mode for raw in raws}) > 1:
        return None
    apart = np.empty((len(wanted), 3), np.int64)
    for each, begin, _ in _places(wanted):
        apart[each.number] = begin, each.raw.height, each.raw.width
    return PicturesApart(pixels, apart, modes.pop(), name, selection)
