"""Results of steps that are the same each time a file comes, kept by a cache: recipes that begin with one, or make one.

A result is uint8 pixels in bands of rows, found by the file's key and the exact steps. A recipe is written anew with
pixels for its source, and the steps that are left; whoever runs it need not know.
"""

from __future__ import annotations

import struct
from ast import literal_eval
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.cache.entry import RESULT, Entry
from accel.codec.header import Header, Raw
from accel.ops import OPS
from accel.planning.order import Steps, parts
from accel.planning.prefix import Prefixes, resamples, text
from accel.recipe import Branch, Recipe, Source
from accel.runtime import cached
from accel.system import counters
from accel.system.memory import Key

_BAND = 1 << 15
"""Bytes of a part of a result, about: what is read is whole parts."""

_SMALL = 1 << 18  # bytes that any result may have; a larger one no more than the picture has samples
_META = struct.Struct("<BBHII")  # the reference, the mode, how many steps, the width and height
_REFERENCES = "pillow", "torchvision", "none"
_MODES, _CHANNELS = ("", "L", "RGB"), (0, 1, 3)

prefixes = Prefixes()


Compute = Callable[[Recipe], npt.NDArray[np.uint8]]


class Result(Source):
    """Pixels that a cache has; where they are damaged, what they are ``of`` is computed anew."""

    __slots__ = ("compute", "entry", "of")

    def __init__(self, of: Recipe, entry: Entry, raw: Raw, compute: Compute) -> None:
        super().__init__(None, raw, of.source.name, of.source.selection)
        self.of, self.entry, self.compute = of, entry, compute

    def _read(self) -> bytes | memoryview:
        return self.pixels(np.empty(self.entry.size, np.uint8)).reshape(-1).data

    def pixels(self, out: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """The pixels, uint8 [height, width, channels]: in ``out``, unless they are damaged."""
        source, shape = self.of.source, (self.header.height, self.header.width, -1)
        if source.cached.cache.read(self.entry, 0, len(self.entry.ends), out):
            counters.count(counters.RESULT_HITS)
            return out.reshape(shape)
        source.cached = source.cached._replace(result=None)
        return np.ascontiguousarray(self.compute(self.of)).reshape(shape)


# -- recipes that begin with a result -----------------------------------------------------------------------


class Wanted(NamedTuple):
    """A result to be made: the number of its recipe, its steps, and the key that it is to be found by."""

    number: int
    before: Recipe
    key: Key | bytes


def begun(recipes: Sequence[Recipe], compute: Compute) -> tuple[Sequence[Recipe], list[Wanted]]:
    """The recipes, with pixels that a cache has for their sources; and the results to be made of others.

    Of files whose recipes begin otherwise each time, the planes are to be kept (``Known.fills``).

    Args:
        compute: the pixels of a recipe, for what is damaged.
    """
    changed: dict[int, Recipe] = {}
    made: dict[tuple[int, int], Result] = {}
    others: list[tuple[int, Steps, Steps]] = []
    for number, (source, steps) in enumerate(recipes):
        known = source.cached
        if known is None and (source.key is None or cached.of(source.selection.options) is None):
            continue
        on_pixels, on_values, tail = parts(steps)
        if tail and _branches(tail):
            continue
        found = None if known is None or known.result is None else _fits(source, on_pixels, known.result)
        if found is None:
            prefixes.note((source.header.height, source.header.width), on_pixels)
            others.append((number, on_pixels, (*on_values, *tail)))
        else:
            changed[number] = _after(source, known.result, found, on_pixels, (*on_values, *tail), compute, made)
    wanted = []
    for number, on_pixels, rest in others:
        count, source = prefixes.length(on_pixels), recipes[number].source
        cache = cached.of(source.selection.options)
        if count is None or cache is None or source.key is None:
            continue
        before = Recipe(source, on_pixels[:count])
        if not _is_worth_it(before):
            if (source.cached is None or source.cached.planes is None) and isinstance(source.header, Header):
                source.cached = (source.cached or cached.Known(cache))._replace(fills=True)
            continue
        key: Key | bytes = source.key
        if source.cached is not None and source.cached.result is not None:
            key = cached.variant(source.key, text(before.steps) or b"")
            file = cache.look(key)
            entry = None if file is None else file.entries.get(RESULT)
            found = None if entry is None else _fits(source, before.steps, entry)
            if entry is not None and found is not None:
                changed[number] = _after(source, entry, found, on_pixels, rest, compute, made)
                continue
        if cache.room(RESULT, _size(before)):
            wanted.append(Wanted(number, before, key))
    if not changed:
        return recipes, wanted
    return [changed.get(number, recipe) for number, recipe in enumerate(recipes)], wanted


def _after(
    source: Source, entry: Entry, raw: Raw, on_pixels: Steps, rest: Steps, compute: Compute, made: dict[Any, Result]
) -> Recipe:
    """The recipe after an entry, which is one source for all recipes of a file."""
    count = _META.unpack_from(entry.meta, cached.MARK)[2]
    result = made.get((id(source), count))
    if result is None:
        before = Recipe(source, on_pixels[:count])
        result = made[id(source), count] = Result(before, entry, raw, compute)
    return Recipe(result, (*on_pixels[count:], *rest))


def _fits(source: Source, on_pixels: Steps, entry: Entry) -> Raw | None:
    """What an entry holds, if that is a result of the first steps; None: it is not."""
    reference, mode, count, width, height = _META.unpack_from(entry.meta, cached.MARK)
    if reference != _reference(source) or count > len(on_pixels):
        return None
    same = repr(on_pixels[:count]).encode() == entry.meta[cached.MARK + _META.size :]
    return Raw(width, height, _MODES[mode]) if same and entry.size == width * height * _CHANNELS[mode] else None


def made_of(entry: Entry) -> tuple[str, Raw, Steps] | None:
    """The reference of a result's decoding, its size, and its steps; None where these cannot be read again."""
    reference, mode, _, width, height = _META.unpack_from(entry.meta, cached.MARK)
    try:
        steps = literal_eval(entry.meta[cached.MARK + _META.size :].decode())
    except (ValueError, SyntaxError):
        return None
    return _REFERENCES[reference], Raw(width, height, _MODES[mode]), steps


def _branches(steps: Steps) -> bool:
    return any(isinstance(each, Branch) for _, params in steps for each in params)


def _reference(source: Source) -> int:
    header = source.header
    return _REFERENCES.index(header.reference if isinstance(header, Header) else "none")


# -- results that are to be made ----------------------------------------------------------------------------


def _is_worth_it(before: Recipe) -> bool:
    """Whether a result is to be kept: of a resize, or of a small part, and of a size that is worth its bytes."""
    source, steps = before
    if not steps or text(steps) is None:
        return False
    pixels, size = source.header.height * source.header.width, _size(before)
    return size <= max(3 * pixels, _SMALL) if resamples(steps) else size <= pixels


def _size(before: Recipe) -> int:
    """The bytes of a result."""
    header, steps = before.source.header, before.steps
    size, channels = (header.height, header.width), 3 if header.mode == "RGB" else 1
    if any(name == "convert" for name, _ in steps):
        channels = 3
    for name, params in steps:
        op = OPS[name]
        size, channels = op.size(size, params), op.channels(channels, params)
    return size[0] * size[1] * channels


def kept(wanted: Wanted, recipe: Recipe, pixels: npt.NDArray[np.uint8]) -> Recipe:
    """Keep a result, uint8 [height, width, channels]; the recipe that began with its steps, with it for a source."""
    source, steps = wanted.before
    height, width, channels = pixels.shape
    mode = _CHANNELS.index(channels)
    cache, header, as_text = cached.of(source.selection.options), cached.packed(source), text(steps)
    content = pixels.reshape(-1).data
    if cache is not None and header is not None and as_text is not None:
        rows = max(_BAND // (width * channels), 1) * width * channels
        ends = [*range(rows, len(content), rows), len(content)]
        said = _META.pack(_reference(source), mode, len(steps), width, height)
        if cache.put(wanted.key, header, RESULT, content, cached.tag() + said + as_text, ends):
            counters.count(counters.RESULTS)
    on_pixels, on_values, tail = parts(recipe.steps)
    after = (*on_pixels[len(steps) :], *on_values, *tail)
    return Recipe(Source(content, Raw(width, height, _MODES[mode]), source.name, source.selection), after)
