"""Cached results of steps that are the same each time a file comes: recipes that begin with one, or make one.

A recipe is rewritten with pixels as its source and the remaining steps, so that a backend runs it as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import cycle, repeat
from math import prod
from typing import NamedTuple

from accel.backend import backend_of
from accel.cache.cache import Cache
from accel.cache.entry import RESULT, Entry
from accel.ops import OPS
from accel.ops.row import TensorOp
from accel.planning.order import Steps, parts
from accel.planning.prefix import ENOUGH, Prefixes
from accel.recipe import Branch, Recipe, Source
from accel.rows import Rows, Structure
from accel.runtime import cached
from accel.runtime.lacking import Lacking, of_images
from accel.runtime.result_entries import (
    Beginning,
    Found,
    found_of,
    is_worth_it,
    kind_of,
    pays_as_a_whole,
    size_of,
    variant,
)
from accel.runtime.result_making import Begins, Wanted
from accel.runtime.result_pixels import Compute, Result, structure_after

_NOTED, _ASKED = 16, 2
"""The number of images of a batch from which is learnt which steps come each time; and the number of those with a
result of some steps for which a result of more steps is looked for."""

_again = cycle([True, False, False, False])
"""Whether to learn from the next batch whose first steps are known: from one in four."""

ALONG = 1 << 16
"""The most pixels, for each image of a batch, to decode beyond what crops need so that all images begin alike: that
takes as long as planning an image by itself."""

Fill = Callable[[Lacking], None]

prefixes = Prefixes()


class _Image(NamedTuple):
    """An image that the cache may have entries of: its number, its source, and its steps on pixels."""

    number: int
    source: Source
    begins: Beginning

    @property
    def on_pixels(self) -> Steps:
        return self.begins.steps


def begun(recipes: Sequence[Recipe], compute: Compute, fill: Fill) -> tuple[Begins, list[Wanted]]:
    """Find the cached pixels that recipes can begin with, and the results to be made for others.

    Args:
        compute: computes the pixels of a recipe, in place of a damaged entry.
        fill: called with the files that the cache lacks and whose recipes begin otherwise each time, so that planes
            or all pixels should be kept.
    """
    begins: dict[int, tuple[_Image, Found]] = {}
    made: dict[tuple[int, int], Result] = {}
    wanted: list[Wanted] = []

    def result(image: _Image, found: Found) -> Result:
        """The source of an entry, the same object for all recipes of a file."""
        entry, raw, count = found
        known = made.get((id(image.source), count))
        if known is None:
            before = Recipe(image.source, image.begins.steps[:count])
            known = made[id(image.source), count] = Result(before, entry, raw, compute)
        return known

    others: list[tuple[_Image, Found | None]] = []
    lacking: list[_Image] = []
    for number, (source, own) in enumerate(_on_pixels(recipes)):
        known = source.cached
        if known is None and (source.key is None or cached.of(source.selection.options) is None):
            continue
        if own is None:
            continue
        image = _Image(number, source, own)
        found = None if known is None else found_of(source, image.begins, known.result, known.pixels)
        if found is not None and found.length == len(image.begins.steps):
            begins[number] = image, found
        else:
            others.append((image, found))
    if others:
        there = [each for each in others if each[1] is not None]
        prefixes.note([(_size_of(image.source), image.on_pixels) for image, _ in others[:_NOTED]])
        if all(_longer(*each, lacking) is each[1] for each in there[:_ASKED]):  # images of a batch have one pipeline
            begins.update({image.number: (image, found) for image, found in there if found is not None})
            others = [each for each in others if each[1] is None]
    for image, found in others:
        longer = _longer(image, found, lacking)
        if isinstance(longer, Wanted):
            if found is not None:
                longer = longer._replace(made_of=Recipe(result(image, found), longer.before.steps[found.length :]))
            wanted.append(longer)
        elif longer is not None:
            begins[image.number] = image, longer
    if lacking:
        fill(of_images([(image.source, image.on_pixels) for image in lacking]))
    if isinstance(recipes, Rows) and (begins or wanted) and not backend_of(recipes.selection).devices:
        lengths = {number: found.length for number, (_, found) in begins.items()}
        wanted += _along(recipes, lengths | {each.number: len(each.before.steps) for each in wanted})
    return {number: (result(image, found), found.length) for number, (image, found) in begins.items()}, wanted


def _along(rows: Rows, lengths: Mapping[int, int]) -> list[Wanted]:
    """Results to be made, not kept, of a batch's other images, so that all begin alike and are rows; none if decoding
    only the others' regions takes much less.

    ``lengths``: by the images' numbers, the number of steps that there is a result of.
    """
    others = [number for number in range(len(rows)) if number not in lengths]
    if not others or sum([prod(_size_of(rows.sources[each])) for each in others]) > ALONG * len(rows):
        return []
    wanted, counts = [], dict(lengths)
    for number in others:
        source, steps = rows[number]
        on_pixels, *_ = parts(steps)
        counts[number] = prefixes.length(_size_of(source), on_pixels) or 0
        before = Recipe(source, on_pixels[: counts[number]])
        wanted.append(Wanted(number, before, None, 0, kind_of(before).raw, before))
    alike = structure_after(rows, [counts[number] for number in range(len(rows))]) is not None
    return wanted if alike else []


def first_steps(rows: Rows) -> int | None:
    """The number of first steps that come each time, without the one that only grey files have, judging by some images;
    None if each image must be looked at."""
    looked = ENOUGH if next(_again) else _ASKED
    heights, widths, _ = (each[:looked].tolist() for each in rows.sizes())
    steps = [parts(rows.structure.steps(row)) for row in rows.numbers[:looked].tolist()]
    some = [*zip(zip(heights, widths, strict=True), steps, strict=True)]
    lengths = {None if _branches(tail) else _length(size, steps) for size, (steps, _, tail) in some[:_ASKED]}
    length = lengths.pop()
    if lengths or length is None:
        return None
    if looked > _ASKED:
        prefixes.note([(size, steps) for size, (steps, _, _) in some])
    return length


def _length(size: tuple[int, int], steps: Steps) -> int | None:
    """The number of steps that come each time, without the one that only grey files have; None if not known."""
    length = prefixes.length(size, steps)
    return length - (steps[0][0] == "convert") if length else length


def _longer(image: _Image, found: Found | None, lacking: list[_Image]) -> Wanted | Found | None:
    """A result of more first steps than ``found``, cached or to be made; else ``found``. A file of which no result is
    to be kept, and which the cache lacks, is added to ``lacking``.
    """
    number, source, on_pixels = image.number, image.source, image.on_pixels
    cache, known = cached.of(source.selection.options), source.cached
    count = prefixes.length(_size_of(source), on_pixels)
    if cache is None or source.key is None or count is None or (found is not None and count <= found.length):
        return found
    before = Recipe(source, on_pixels[:count])
    if not is_worth_it(before):
        if found is None and (known is None or known.planes is None) and pays_as_a_whole(source):
            lacking.append(image)
        return found
    key = cached.place(source)
    if known is not None and known.result is not None:  # another result has the file's own key
        key = variant(source, before.steps)
        if (there := _result_at(cache, key, source, before.steps)) is not None:
            return there
    raw, shelf, *_ = kind_of(before)
    return Wanted(number, before, key, shelf, raw, before) if cache.room(shelf, size_of(raw)) else found


def _result_at(cache: Cache, key: bytes, source: Source, steps: Steps) -> Found | None:
    file = cache.look(key)
    return None if file is None else found_of(source, Beginning(steps), file.entries.get(RESULT))


def described(recipe: Recipe) -> Iterator[tuple[Entry, Steps | None]]:
    """The cached entries that an image's recipe may begin with, and the steps that each is the result of; None for
    planes."""
    source, on_pixels = recipe.source, parts(recipe.steps)[0]
    known = source.cached
    if known is None or source.key is None:
        return
    others = [known.cache.look(variant(source, on_pixels[:count])) for count in range(len(on_pixels), 0, -1)]
    entries = [known.result, *[file.entries.get(RESULT) for file in others if file is not None], known.pixels]
    for entry in entries:
        found = found_of(source, Beginning(on_pixels), entry)
        if found is not None:
            yield found.entry, on_pixels[: found.length]
    if known.planes is not None:
        yield known.planes, None


def _on_pixels(recipes: Sequence[Recipe]) -> Iterable[tuple[Source, Beginning | None]]:
    """The sources, each with its steps on pixels; None in their place if steps branch."""
    if not isinstance(recipes, Rows):
        return [(source, _beginning(steps)) for source, steps in recipes]
    return zip(recipes.sources, beginnings(recipes), strict=True)


def beginnings(rows: Rows) -> Iterable[Beginning | None]:
    """The steps on pixels of each image, one object for equal ones; None if steps branch."""
    structure = structure_on_pixels(rows.structure)
    if structure is None:
        return repeat(None, len(rows))
    return map(beginning_of_row, repeat(structure), map(tuple, rows.numbers.tolist()))


def _beginning(steps: Steps) -> Beginning | None:
    on_pixels, _, tail = parts(steps)
    return None if tail and _branches(tail) else Beginning(on_pixels)


@lru_cache(maxsize=1024)
def beginning_of_row(structure: Structure, row: tuple[int, ...]) -> Beginning:
    """The beginning of a row: cached, as the steps that come each time differ only by the size of pictures."""
    return Beginning(structure.steps(row))


@lru_cache(maxsize=256)
def structure_on_pixels(structure: Structure) -> Structure | None:
    """A structure's steps on pixels; None if steps branch."""
    pixels, values, tail = parts(tuple([(form.name, form.params) for form in structure.forms]))
    forms = structure.forms[: len(pixels) + len(values)]
    if _branches(tail):
        return None
    return Structure.of(*[form for form in forms if not isinstance(OPS[form.name], TensorOp)])


def _branches(steps: Steps) -> bool:
    return any(isinstance(each, Branch) for _, params in steps for each in params)


def _size_of(source: Source) -> tuple[int, int]:
    return source.header.height, source.header.width
