"""Results that a cache is to have: what they are, and what becomes of them when they have been computed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, groupby
from typing import NamedTuple

import numpy as np

from accel.backend import backend_of
from accel.codec.engines import Pixels
from accel.codec.header import Raw
from accel.options import Selection
from accel.planning.order import parts
from accel.recipe import Recipe, Source
from accel.rows import Pictures, Rows
from accel.runtime import cached
from accel.runtime.result_entries import put, size_of
from accel.runtime.result_pixels import structure_after
from accel.sources import PicturesApart, Sources
from accel.system.memory import Key


class Wanted(NamedTuple):
    """A result to be made: the number of its recipe, its steps, and the key that it is to be found by.

    ``shelf``: that it has in the cache (``accel.cache.worth``). ``raw``: what its pixels are.
    ``made_of``: a recipe of the same pixels, which may begin with what the cache has already.
    """

    number: int
    before: Recipe
    key: Key | bytes
    shelf: int
    raw: Raw
    made_of: Recipe


def took(wanted: Sequence[Wanted], seconds: float) -> None:
    """Note how long it took to make results, in one go: that is what they save, but for reading them."""
    cache = cached.of(wanted[0].made_of.source.selection.options)
    sizes: dict[int, int] = {}
    for each in wanted:
        sizes[each.shelf] = sizes.get(each.shelf, 0) + size_of(each.raw)
    if cache is not None and (whole := sum(sizes.values())):
        for shelf, own in sizes.items():
            cache.worth.made(shelf, 1e6 * seconds * own / whole, own)


def kept(wanted: Sequence[Wanted], pixels: Pixels) -> list[Source]:
    """Keep results, whose pixels lie side by side; sources that have them."""
    ends = [0, *accumulate([size_of(each.raw) for each in wanted])]
    for shelf, group in groupby(range(len(wanted)), lambda number: wanted[number].shelf):
        own = [*group]
        results = [(each.before, each.key, each.raw) for each in wanted[own[0] : own[-1] + 1]]
        put(results, shelf, pixels[ends[own[0]] : ends[own[-1] + 1]].data)
    return [
        Source(pixels[begin:end].data, each.raw, each.before.source.name, each.before.source.selection)
        for each, begin, end in zip(wanted, ends, ends[1:], strict=False)
    ]


def after(recipes: Sequence[Recipe], made: Sequence[tuple[Sequence[Wanted], Pixels]]) -> Sequence[Recipe]:
    """Keep results that were made, and have recipes begin with them."""
    found = {
        each.number: (source, len(each.before.steps))
        for wanted, pixels in made
        for each, source in zip(wanted, kept(wanted, pixels), strict=True)
    }
    if isinstance(recipes, Rows) and len(found) == len(recipes):
        structure = structure_after(recipes, [found[number][1] for number in range(len(recipes))])
        pictures = _pictures(*made[0], recipes.selection) if len(made) == 1 else None
        sources = [found[number][0] for number in range(len(recipes))] if pictures is None else pictures
        if structure is not None and (isinstance(sources, Pictures) or not backend_of(recipes.selection).devices):
            return Rows(sources, structure, recipes.numbers[:, : structure.columns])
    begun = list(recipes)
    for number, (source, length) in found.items():
        on_pixels, on_values, tail = parts(recipes[number].steps)
        begun[number] = Recipe(source, (*on_pixels[length:], *on_values, *tail))
    return begun


def _pictures(wanted: Sequence[Wanted], pixels: Pixels, selection: Selection) -> Sources | None:
    """Results of all images as one piece of memory; None where they are of several modes."""
    raws, name = {each.raw for each in wanted}, "results that a cache takes"
    if len(raws) == 1 and [each.number for each in wanted] == [*range(len(wanted))]:
        raw = raws.pop()
        shape = len(wanted), raw.height, raw.width, *((3,) if raw.mode == "RGB" else ())
        return Pictures(pixels.reshape(shape), name, selection)
    if len(modes := {raw.mode for raw in raws}) > 1:
        return None
    apart, begin = np.empty((len(wanted), 3), np.int64), 0
    for number, *_, raw, _ in wanted:
        apart[number] = begin, raw.height, raw.width
        begin += size_of(raw)
    return PicturesApart(pixels, apart, modes.pop(), name, selection)
