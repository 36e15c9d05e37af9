"""Results of steps that are the same each time a file comes, kept by a cache: recipes that begin with one, or make one.

A result is uint8 pixels in bands of rows, found by the file's key and the exact steps. A recipe is written anew with
pixels for its source, and the steps that are left; whoever runs it need not know. Of a file that is no JPEG (and so has
no planes) whose steps begin otherwise each time, all pixels are kept, as the result of no step.
"""

from __future__ import annotations

import struct
from ast import literal_eval
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.cache.cache import Cache
from accel.cache.entry import PIXELS, RESULT, Entry
from accel.codec.decode import region
from accel.codec.engines import Box, Pixels
from accel.codec.foreign import DECODERS
from accel.codec.header import Header, Raw
from accel.ops import OPS
from accel.planning.order import Steps, parts
from accel.planning.prefix import Prefixes, resamples, text
from accel.recipe import Branch, Recipe, Source
from accel.runtime import cached
from accel.system import counters
from accel.system.memory import Key, Scratch

_BAND, _BANDS = 1 << 15, 64
"""Bytes of a part of a result, about, and how many of them there are at most: what is read is whole parts."""

_SMALL = 1 << 18  # bytes that any result may have; a larger one no more than the picture has samples
_META = struct.Struct("<BBHII")  # the reference, the mode, how many steps, the width and height
_REFERENCES = "pillow", "torchvision", "none", *DECODERS
_MODES, _CHANNELS = ("", "L", "RGB"), (0, 1, 3)

prefixes = Prefixes()
_parts = Scratch()


Compute = Callable[[Recipe], npt.NDArray[np.uint8]]


class Result(Source):
    """Pixels that a cache has; where they are damaged, what they are ``of`` is computed anew."""

    __slots__ = ("compute", "entry", "of")

    def __init__(self, of: Recipe, entry: Entry, raw: Raw, compute: Compute) -> None:
        super().__init__(None, raw, of.source.name, of.source.selection)
        self.of, self.entry, self.compute = of, entry, compute

    def _read(self) -> bytes | memoryview:
        pixels = self.region((0, 0, self.header.height, self.header.width), _CHANNELS[_MODES.index(self.header.mode)])
        return pixels.tobytes()

    def region(self, box: Box, channels: int) -> Pixels:
        """The pixels of a box (top, left, height, width), uint8 [height, width, channels]; of two calls of a thread
        the latter may change what the former gave."""
        row, ends = self.header.width * _CHANNELS[_MODES.index(self.header.mode)], self.entry.ends
        top, left, height, width = box
        band = max(ends[0] // row, 1)
        first, last = top // band, -(-(top + height) // band)
        begin, end = self.entry.span(first, last)
        out = _parts.take(end - begin)
        known = self.of.source.cached
        if known.cache.read(self.entry, first, last, out):
            counters.count(counters.RESULT_HITS)
            return region(out.reshape(-1, self.header.width, row // self.header.width), (top - first * band, left, height, width), channels)
        lost = {name: None for name in ("result", "pixels") if getattr(known, name) is self.entry}
        self.of.source.cached = known._replace(**lost)
        whole = np.ascontiguousarray(self.compute(self.of))
        return region(whole.reshape(self.header.height, self.header.width, -1), box, channels)


# -- recipes that begin with a result -----------------------------------------------------------------------


class Wanted(NamedTuple):
    """A result to be made: the number of its recipe, its steps, and the key that it is to be found by.

    ``made_of``: a recipe of the same pixels, which may begin with what the cache has already.
    """

    number: int
    before: Recipe
    key: Key | bytes
    made_of: Recipe


class _Image(NamedTuple):
    """An image of which the cache may have something: its number, its source, and its steps in two parts."""

    number: int
    source: Source
    on_pixels: Steps
    rest: Steps


def begun(recipes: Sequence[Recipe], compute: Compute) -> tuple[Sequence[Recipe], list[Wanted]]:
    """The recipes, with pixels that a cache has for their sources; and the results to be made of others.

    Of files whose recipes begin otherwise each time, the planes, or all pixels, are to be kept (``Known.fills``).

    Args:
        compute: the pixels of a recipe, for what is damaged.
    """
    changed: dict[int, Recipe] = {}
    made: dict[tuple[int, int], Result] = {}
    wanted: list[Wanted] = []

    def after(image: _Image, found: _Found) -> Recipe:
        """The recipe after an entry, which is one source for all recipes of a file."""
        entry, raw, count = found
        result = made.get((id(image.source), count))
        if result is None:
            before = Recipe(image.source, image.on_pixels[:count])
            result = made[id(image.source), count] = Result(before, entry, raw, compute)
        return Recipe(result, (*image.on_pixels[count:], *image.rest))

    others: list[tuple[_Image, _Found | None]] = []
    for number, (source, steps) in enumerate(recipes):
        known = source.cached
        if known is None and (source.key is None or cached.of(source.selection.options) is None):
            continue
        on_pixels, on_values, tail = parts(steps)
        if tail and _branches(tail):
            continue
        image = _Image(number, source, on_pixels, (*on_values, *tail))
        found = None if known is None else _found(source, on_pixels, known.result, known.pixels)
        if found is not None and found.count == len(on_pixels):
            changed[number] = after(image, found)
        else:
            others.append((image, found))
    if others:
        prefixes.note([(_size_of(image.source), image.on_pixels) for image, _ in others])
    for image, found in others:
        longer = _longer(image, found)
        if isinstance(longer, Wanted):
            shorter = longer.before if found is None else after(image._replace(rest=()), found)
            steps = shorter.steps[: len(longer.before.steps) - (0 if found is None else found.count)]
            wanted.append(longer._replace(made_of=Recipe(shorter.source, steps)))
        elif longer is not None:
            changed[image.number] = after(image, longer)
    if not changed:
        return recipes, wanted
    return [changed.get(number, recipe) for number, recipe in enumerate(recipes)], wanted


class _Found(NamedTuple):
    """An entry of a cache, what it holds, and of how many steps."""

    entry: Entry
    raw: Raw
    count: int


def _found(source: Source, on_pixels: Steps, *entries: Entry | None) -> _Found | None:
    """The first entry that is a result of the first steps."""
    for entry in entries:
        raw = None if entry is None else _fits(source, on_pixels, entry)
        if entry is not None and raw is not None:
            return _Found(entry, raw, _META.unpack_from(entry.meta, cached.MARK)[2])
    return None


def _longer(image: _Image, found: _Found | None) -> Wanted | _Found | None:
    """What takes the place of the first steps: a result of more of them than what was ``found``, there or to be made;
    else that."""
    number, source, on_pixels, _ = image
    cache, known = cached.of(source.selection.options), source.cached
    count = prefixes.length(_size_of(source), on_pixels)
    if cache is None or source.key is None or count is None or (found is not None and count <= found.count):
        return found
    before = Recipe(source, on_pixels[:count])
    if not _is_worth_it(before):
        if found is None and (known is None or known.planes is None):
            source.cached = (known or cached.Known(cache))._replace(fills=True)
        return found
    key = cached.place(source)
    if known is not None and known.result is not None:  # which has the place already
        key = _variant(source, before.steps)
        if (there := _result_at(cache, key, source, before.steps)) is not None:
            return there
    return Wanted(number, before, key, before) if cache.room(RESULT, _size(before)) else found


def _variant(source: Source, steps: Steps) -> bytes:
    """The key of a result besides the first of its file."""
    return cached.variant(cached.place(source), bytes([_reference(source)]) + (text(steps) or b""))


def _result_at(cache: Cache, key: bytes, source: Source, steps: Steps) -> _Found | None:
    file = cache.look(key)
    return None if file is None else _found(source, steps, file.entries.get(RESULT))


def described(recipe: Recipe) -> Iterator[tuple[Entry, Steps]]:
    """What the cache has of an image's file that its recipe may begin with: entries, and the steps that they are of."""
    source, on_pixels = recipe.source, parts(recipe.steps)[0]
    known = source.cached
    if known is None or source.key is None:
        return
    others = [known.cache.look(_variant(source, on_pixels[:count])) for count in range(len(on_pixels), 0, -1)]
    entries = [known.result, *[file.entries.get(RESULT) for file in others if file is not None], known.pixels]
    for entry in entries:
        found = _found(source, on_pixels, entry)
        if found is not None:
            yield found.entry, on_pixels[: found.count]


def _fits(source: Source, on_pixels: Steps, entry: Entry) -> Raw | None:
    """What an entry holds, if that is a result of the first steps; None: it is not."""
    if not entry.meta.startswith(cached.tag()):
        return None
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
    return _REFERENCES.index(header.reference if isinstance(header, Header) else header.decoder or "none")


def _size_of(source: Source) -> tuple[int, int]:
    return source.header.height, source.header.width


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
    raw, content = Raw(width, height, _MODES[_CHANNELS.index(channels)]), pixels.reshape(-1).data
    _put(source, wanted.key, RESULT, steps, raw, content)
    on_pixels, on_values, tail = parts(recipe.steps)
    after = (*on_pixels[len(steps) :], *on_values, *tail)
    return Recipe(Source(content, raw, source.name, source.selection), after)


def keep_all(source: Source) -> None:
    """Keep all pixels of a file that is no JPEG, where they are to be (``Known.fills``) and there is room for them."""
    known, raw = source.cached, source.header
    if known is None or not known.fills or not isinstance(raw, Raw):
        return
    source.cached = known._replace(fills=False)
    content = memoryview(source.data).cast("B")
    if known.cache.room(PIXELS, content.nbytes):
        _put(source, cached.place(source), PIXELS, (), raw, content)


def _put(source: Source, key: Key | bytes, kind: int, steps: Steps, raw: Raw, content: memoryview) -> None:
    cache, header, as_text = cached.of(source.selection.options), cached.packed(source), text(steps)
    if cache is None or header is None or as_text is None:
        return
    row = raw.width * _CHANNELS[_MODES.index(raw.mode)]
    band = max(max(_BAND, len(content) // _BANDS) // row, 1) * row
    bands = [content[at : at + band] for at in range(0, len(content), band)]
    said = _META.pack(_reference(source), _MODES.index(raw.mode), len(steps), raw.width, raw.height)
    if cache.put(key, header, kind, bands, cached.tag() + said + as_text):
        counters.count(counters.RESULTS)
