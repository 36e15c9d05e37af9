"""Results of steps that are the same each time a file comes, kept by a cache: recipes that begin with one, or make one.

A recipe is written anew with pixels for its source, and the steps that are left; whoever runs it need not know.
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
from accel.cache.worth import shelf_of
from accel.codec.header import Header
from accel.planning.order import Steps, parts
from accel.planning.prefix import ENOUGH, Prefixes, pipeline
from accel.recipe import Branch, Recipe, Source
from accel.rows import Rows, Structure
from accel.runtime import cached
from accel.runtime.lacking import Lacking, of_images, of_rows
from accel.runtime.result_entries import (
    Beginning,
    Found,
    found_of,
    is_worth_it,
    pays_as_a_whole,
    raw_of,
    size_of,
    variant,
)
from accel.runtime.result_making import Begins, Wanted
from accel.runtime.result_pixels import Compute, Result, structure_after
from accel.sources import Files, Sources

_NOTED, _ASKED = 16, 2
"""How many images of a batch are looked at to learn which steps come each time; and of those that have a result of
some of their steps, how many are asked for more."""

_again = cycle([True, False, False, False])
"""Of which batches whose images begin otherwise each time that is noted once more."""

_ALONG = 1 << 16
"""For each image of a batch, pixels of others that are decoded whole though a crop would do: that takes as long as to
plan an image by itself."""

Fill = Callable[[Lacking], None]

prefixes = Prefixes()


class _Image(NamedTuple):
    """An image of which the cache may have something: its number, its source, and its steps in two parts."""

    number: int
    source: Source
    begins: Beginning
    rest: Steps

    @property
    def on_pixels(self) -> Steps:
        return self.begins.steps


def begun(recipes: Sequence[Recipe], compute: Compute, fill: Fill) -> tuple[Begins, list[Wanted]]:
    """What recipes begin with that a cache has, and the results to be made of others.

    Args:
        compute: the pixels of a recipe, for what is damaged.
        fill: is told of files that the cache lacks, whose recipes begin otherwise each time: the planes, or all
            pixels, are to be kept.
    """
    if isinstance(recipes, Rows) and _of_planes_alone(recipes, fill):
        return {}, []
    begins: dict[int, tuple[_Image, Found]] = {}
    made: dict[tuple[int, int], Result] = {}
    wanted: list[Wanted] = []

    def result(image: _Image, found: Found) -> Result:
        """The source of an entry, which is one for all recipes of a file."""
        entry, raw, count = found
        known = made.get((id(image.source), count))
        if known is None:
            before = Recipe(image.source, image.begins.steps[:count])
            known = made[id(image.source), count] = Result(before, entry, raw, compute)
        return known

    others: list[tuple[_Image, Found | None]] = []
    lacking: list[_Image] = []
    for number, (source, split) in enumerate(_each_split(recipes)):
        known = source.cached
        if known is None and (source.key is None or cached.of(source.selection.options) is None):
            continue
        if split is None:
            continue
        image = _Image(number, source, *split)
        found = None if known is None else found_of(source, image.begins, known.result, known.pixels)
        if found is not None and found.length == len(image.begins.steps):
            begins[number] = image, found
        else:
            others.append((image, found))
    if others:
        there = [each for each in others if each[1] is not None]
        prefixes.note([(_size_of(image.source), image.on_pixels) for image, _ in others[:_NOTED]])
        if all(_longer(*each, lacking) is each[1] for each in there[:_ASKED]):  # a batch is of one pipeline
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
    """The same results of a batch's other images, which are made and not kept, so that all begin alike and are rows;
    none where the others' regions alone take much less.

    ``lengths``: how many steps there are results of, by the images' numbers.
    """
    others = [number for number in range(len(rows)) if number not in lengths]
    if not others or sum([prod(_size_of(rows.sources[each])) for each in others]) > _ALONG * len(rows):
        return []
    wanted, counts = [], dict(lengths)
    for number in others:
        source, steps = rows[number]
        on_pixels, *_ = parts(steps)
        counts[number] = prefixes.length(_size_of(source), on_pixels) or 0
        before = Recipe(source, on_pixels[: counts[number]])
        wanted.append(Wanted(number, before, None, 0, raw_of(before), before))
    alike = structure_after(rows, [counts[number] for number in range(len(rows))]) is not None
    return wanted if alike else []


def _of_planes_alone(rows: Rows, fill: Fill) -> bool:
    """Whether a batch is of JPEG files whose recipes begin otherwise each time, and of none is a result there: then no
    image is looked at by itself, but for some that say what the batch's pipeline does."""
    sources = rows.sources
    files = isinstance(sources, Files) or not isinstance(sources, Sources)
    lacking = _without_planes(sources) if files and cached.of(rows.selection.options) is not None else None
    if lacking is None:
        return False
    looked = ENOUGH if next(_again) else _ASKED
    heights, widths, _ = (each[:looked].tolist() for each in rows.sizes())
    steps = [parts(rows.structure.steps(row)) for row in rows.numbers[:looked].tolist()]
    some = [*zip(zip(heights, widths, strict=True), steps, strict=True)]
    if any(_branches(tail) or prefixes.length(size, steps) != 0 for size, (steps, _, tail) in some[:_ASKED]):
        return False
    if looked > _ASKED:
        prefixes.note([(size, steps) for size, (steps, _, _) in some])
    if lacking:
        fill(of_rows(rows, lacking))
    return True


def _without_planes(sources: Sequence[Source]) -> list[int] | None:
    """Which of JPEG files have no planes in the cache; None: some are others, or may have more there."""
    looked: Iterable[tuple[int, Source]] = enumerate(sources)
    if isinstance(sources, Files):  # of one that nobody has looked at the cache has nothing
        if not sources.keys().trusted.all():
            return None
        looked = sources.made()
    there = set[int]()
    for number, source in looked:
        known = source.cached
        if source.key is None or not isinstance(source.header, Header):
            return None
        if known is not None and (known.result is not None or known.pixels is not None):
            return None
        if known is not None and known.planes is not None:
            there.add(number)
    return [number for number in range(len(sources)) if number not in there]


def _longer(image: _Image, found: Found | None, lacking: list[_Image]) -> Wanted | Found | None:
    """What takes the place of the first steps: a result of more of them than what was ``found``, there or to be made;
    else that. Of a file that is ``lacking`` in the cache no result is kept.
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
    if known is not None and known.result is not None:  # which has the place already
        key = variant(source, before.steps)
        if (there := _result_at(cache, key, source, before.steps)) is not None:
            return there
    shelf, raw = shelf_of(RESULT, pipeline(_size_of(source), before.steps)), raw_of(before)
    return Wanted(number, before, key, shelf, raw, before) if cache.room(shelf, size_of(raw)) else found


def _result_at(cache: Cache, key: bytes, source: Source, steps: Steps) -> Found | None:
    file = cache.look(key)
    return None if file is None else found_of(source, Beginning(steps), file.entries.get(RESULT))


def described(recipe: Recipe) -> Iterator[tuple[Entry, Steps | None]]:
    """What the cache has of an image's file that its recipe may begin with: entries, and the steps that they are of;
    None: of planes."""
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


_Split = tuple[Beginning, Steps]


def _each_split(recipes: Sequence[Recipe]) -> Iterable[tuple[Source, _Split | None]]:
    """The sources, and their steps in two parts; None where these branch."""
    if not isinstance(recipes, Rows):
        return [(source, _split(steps)) for source, steps in recipes]
    rows = map(tuple, recipes.numbers.tolist())
    return zip(recipes.sources, map(split_row, repeat(recipes.structure), rows), strict=True)


def _split(steps: Steps) -> _Split | None:
    on_pixels, on_values, tail = parts(steps)
    return None if tail and _branches(tail) else (Beginning(on_pixels), (*on_values, *tail))


@lru_cache(maxsize=1024)
def split_row(structure: Structure, row: tuple[int, ...]) -> _Split | None:
    """Of steps that come each time, for each size of pictures."""
    return _split(structure.steps(row))


def _branches(steps: Steps) -> bool:
    return any(isinstance(each, Branch) for _, params in steps for each in params)


def _size_of(source: Source) -> tuple[int, int]:
    return source.header.height, source.header.width
