"""Results of steps that are the same each time a file comes, kept by a cache: recipes that begin with one, or make one.

A result is uint8 pixels in bands of rows, found by the file's key and the exact steps. A recipe is written anew with
pixels for its source, and the steps that are left; whoever runs it need not know.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.cache import RESULT, Entry
from accel.codec.header import Header, Raw
from accel.ops import OPS
from accel.planning.order import Steps, parts
from accel.planning.prefix import Prefixes, resamples, text
from accel.recipe import Branch, Recipe, Source
from accel.runtime import cached
from accel.system import counters, fork

_BAND = 1 << 15
"""Bytes of a part of a result, about: what is read is whole parts."""

_MOST = 4  # results of a file
_META = struct.Struct("<BBHII")  # the reference, the mode, how many steps, the width and height
_REFERENCES = "pillow", "torchvision", "none"
_MODES = "", "L", "RGB"

prefixes = Prefixes()
fork.register(in_child=prefixes.__init__)  # type: ignore[misc]  # its lock may have been held


class Result(Source):
    """Pixels that a cache has; ``instead`` gives the same where it turns out that they are damaged."""

    __slots__ = ("entry", "instead")

    def __init__(self, source: Source, entry: Entry, raw: Raw, instead: Callable[[], Any]) -> None:
        super().__init__(None, raw, source.name, source.selection)
        self.cached, self.entry, self.instead = source.cached, entry, instead

    def _read(self) -> bytes | memoryview:
        pixels = np.empty(sum(self.entry.part_sizes), np.uint8)
        if self.cached.cache.read(self.entry, 0, len(self.entry.part_sizes), pixels):
            counters.count(counters.RESULT_HITS)
            return pixels.data
        return memoryview(np.ascontiguousarray(self.instead()).reshape(-1))


# -- recipes that begin with a result -----------------------------------------------------------------------


def used(recipes: Sequence[Recipe], compute: Callable[[Recipe], npt.NDArray[np.uint8]]) -> Sequence[Recipe]:
    """The recipes, with the pixels that a cache has in place of sources and first steps.

    ``compute``: the pixels of a recipe, for what is damaged.
    """
    if all(recipe.source.cached is None or not recipe.source.cached.results for recipe in recipes):
        return recipes
    made: dict[tuple[int, int], Result] = {}

    def begun(recipe: Recipe) -> Recipe:
        source = recipe.source
        if source.cached is None or not source.cached.results:
            return recipe
        found = _found(recipe)
        if found is None:
            return recipe
        number, raw, count, on_pixels, others = found
        result = made.get((id(source), number))
        if result is None:
            before = Recipe(source, on_pixels[:count])
            entry = source.cached.results[number]
            result = made[id(source), number] = Result(source, entry, raw, lambda: compute(before))
        return Recipe(result, (*on_pixels[count:], *others))

    return [begun(recipe) for recipe in recipes]


def _found(recipe: Recipe) -> tuple[int, Raw, int, Steps, Steps] | None:
    """The longest result that a recipe begins with: its number, what it is, of how many of the steps on pixels; these,
    and all others."""
    source, steps = recipe
    on_pixels, on_values, tail = parts(steps)
    if tail and _branches(tail):
        return None
    reference, best = _reference(source), None
    for number, entry in enumerate(source.cached.results):
        which, mode, count, width, height = _META.unpack_from(entry.meta, _MARK)
        if which != reference or count > len(on_pixels) or (best is not None and best[2] >= count):
            continue
        size = width * height * (3 if mode == 2 else 1)
        if repr(on_pixels[:count]).encode() == entry.meta[_MARK + _META.size :] and sum(entry.part_sizes) == size:
            best = number, Raw(width, height, _MODES[mode]), count, on_pixels, (*on_values, *tail)
    return best


_MARK = 8  # bytes of ``cached.tag``


def _branches(steps: Steps) -> bool:
    return any(isinstance(each, Branch) for _, params in steps for each in params)


def _reference(source: Source) -> int:
    header = source.header
    return _REFERENCES.index(header.reference if isinstance(header, Header) else "none")


# -- results that are to be made ----------------------------------------------------------------------------


class Wanted(NamedTuple):
    """A result to be made: the number of its recipe, and its steps."""

    number: int
    before: Recipe


def wanted(recipes: Sequence[Recipe]) -> list[Wanted]:
    """The results that the recipes, none of which begins with one, would be worth keeping."""
    found = []
    for number, recipe in enumerate(recipes):
        source, steps = recipe
        header = source.header
        if source.key is None or isinstance(source, Result):
            continue
        cache = cached.of(source.selection.options)
        if cache is None or (source.cached is not None and len(source.cached.results) >= _MOST):
            continue
        on_pixels, _, tail = parts(steps)
        count = prefixes.length((header.height, header.width), on_pixels)
        before = on_pixels[:count]
        if count == 0 or (tail and _branches(tail)) or not resamples(before) or text(before) is None:
            continue
        height, width, channels = _shape(header, before)
        size = height * width * channels
        if 2 * size <= 3 * header.height * header.width and cache.room(size):
            found.append(Wanted(number, Recipe(source, before)))
    return found


def _shape(header: Header | Raw, steps: Steps) -> tuple[int, int, int]:
    size, channels = (header.height, header.width), 3 if header.mode == "RGB" else 1
    if any(name == "convert" for name, _ in steps):
        channels = 3
    for name, params in steps:
        op = OPS[name]
        size, channels = op.size(size, params), op.channels(channels, params)
    return *size, channels


def kept(before: Recipe, recipe: Recipe, pixels: npt.NDArray[np.uint8]) -> Recipe:
    """Keep a result, uint8 [height, width, channels]; the recipe that began with these steps, with it for a source."""
    source, steps = before
    height, width, channels = pixels.shape
    raw = Raw(width, height, _MODES[1 if channels == 1 else 2])
    cache, header, as_text = cached.of(source.selection.options), cached.packed(source), text(steps)
    content = pixels.reshape(-1).data
    if cache is not None and header is not None and as_text is not None and source.key is not None:
        rows = max(_BAND // (width * channels), 1) * width * channels
        bands = [content[at : at + rows] for at in range(0, len(content), rows)]
        said = _META.pack(_reference(source), 1 if channels == 1 else 2, len(steps), width, height)
        if cache.put(source.key, header, RESULT, bands, cached.tag() + said + as_text):
            counters.count(counters.RESULTS)
    on_pixels, on_values, tail = parts(recipe.steps)
    after = (*on_pixels[len(steps) :], *on_values, *tail)
    return Recipe(Source(content, raw, source.name, source.selection), after)
