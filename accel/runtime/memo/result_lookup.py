"""What a cache has of a batch, looked up together, and what it lacks: results to be made, and files to be put in.

Which first steps come each time, so that their results are kept, is learnt from the batches (``planning.prefix``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.backend import backend_of
from accel.cache.cache import Cache
from accel.cache.entry import RESULT
from accel.ops import OPS
from accel.ops.row import TensorOp
from accel.planning.order import Steps, parts
from accel.planning.prefix import ENOUGH, Prefixes
from accel.recipes.recipe import Branch, Recipe, Source, selection_of
from accel.recipes.rows import Form, Numbers, Rows, Slot, Structure
from accel.recipes.sources import Files, sizes_of, table_of
from accel.runtime.memo import cached
from accel.runtime.memo.result_entries import (
    JPEG,
    Prefix,
    ResultEntry,
    ResultSpec,
    pays_as_a_whole,
    prefix_of,
    prefix_of_row,
    reference_of,
    result_entry_in,
    result_entry_of,
    spec_of,
    steps_of,
    variant,
)
from accel.runtime.memo.result_pixels import Compute, StoredResult, converted, split
from accel.system.fork import cached_property
from accel.system.memory import Key

_LEARNT, _CHECKED = 16, 2
"""The number of images of a batch from which is learnt which steps come each time where that is not known; and of those
by which is seen whether it is."""

_again = cycle([True, False, False, False, False])
"""Whether to learn from the next batch whose first steps are known: from one in five, so that two pipelines that take
turns are both learnt from."""

ALONG = 1 << 16
"""The most pixels, for each image of a batch, to decode beyond what crops need so that all images begin alike: that
takes as long as planning an image by itself."""

prefixes = Prefixes()


class MissingResult(NamedTuple):
    """A result to be made: the key to keep it by, None if it is not kept; and its kind."""

    key: Key | bytes | None
    kind: ResultSpec


class BatchLookup:
    """A batch in columns, and what becomes of its images.

    Attributes:
        recipes: the images. rows: the same as rows; None if they have no structure in common.
        lengths: the number of first steps on pixels of which each should have a result; None if that is not known.
        halves: their structure before and after these; None if they are different steps.
        sources: the images' sources. files: the same if they are ``Files``, else None. known: what a cache has of each.
        prefixes: the steps themselves, or all where that is not known; None if an image's steps branch.
        found, missing: by the images' numbers, the results that they begin with, and those to be made.
        uncached: the numbers of those whose planes or pixels may be put in.
    """

    sources: Sequence[Source]

    def __init__(self, recipes: Sequence[Recipe], compute: Compute) -> None:
        """``compute``: computes the pixels of a recipe, in place of a damaged entry."""
        self.recipes, self.selection, self._compute = recipes, selection_of(recipes), compute
        self.cache = cached.of(self.selection.options)
        self.rows = recipes if isinstance(recipes, Rows) else None
        if self.rows is None:
            self.sources = [source for source, _ in recipes]
            table = table_of([source.header for source in self.sources])
        else:
            self.sources, table = self.rows.sources, self.rows.table()
            self._structure = _on_pixels(self.rows.structure)
        self.files = self.sources if isinstance(self.sources, Files) else None
        self.known, self._references = _known_of(self.sources)
        heights, widths, coloured = sizes_of(table)
        self._heights, self._widths = heights.tolist(), widths.tolist()
        self._channels = np.where(coloured, 3, 1).tolist()
        self.halves: tuple[Structure, Structure] | None = None
        self.found: dict[int, ResultEntry] = {}
        self.missing: dict[int, MissingResult] = {}
        self.uncached: list[int] = []
        self._results: dict[tuple[int, int], StoredResult] = {}
        self._look()

    # -- look up --------------------------------------------------------------------------------------------

    def _look(self) -> None:
        complete = self._complete()
        if complete is not None:
            found = self._find(complete)
            if all(own is not None and own.length == length for own, length in zip(found, complete, strict=True)):
                self.found = {number: own for number, own in enumerate(found) if own is not None}
                return
        if not any(self.known) and (self.cache is None or not any(self._keys)):  # pixels of no file
            return
        lengths, varying, missing = self._learnt(), list[int](), list[int]()
        for number, (own, length) in enumerate(zip(self._find(lengths), lengths, strict=True)):
            if own is not None and (length is None or self.cache is None or own.length == length):
                self.found[number] = own
            elif length is not None and self.cache is not None and self._keys[number] is not None:
                (missing if length else varying).append(number)
        self._without(sorted([*varying, *self._plan(missing)]))
        self._fit()
        self._along()

    def _complete(self) -> Sequence[int] | None:
        """The numbers of all steps on pixels if the first image has a result of so many; else None."""
        known = self.known[0]
        if self.rows is None or self._structure is None or known is None or known.result is None:
            return None
        count, of_grey = len(self._structure.steps(self.rows.numbers[0].tolist())), converted(self.rows)
        if steps_of(known.result) != count:
            return None
        lengths: list[int] = (count - int(of_grey[0]) + of_grey).tolist()
        return lengths

    def _learnt(self) -> Sequence[int | None]:
        """For each image, the number of its first steps on pixels that come each time; None if that is not known.

        Of rows that is judged by a few images.
        """
        looked = ENOUGH if next(_again) else _CHECKED
        some = [*self._of_sizes(looked)]
        if self.rows is not None:
            counts = {_without_convert(prefixes.length(*each), each[1]) for each in some[:_CHECKED]}
            if len(counts) == 1 and (count := counts.pop()) is not None:
                if looked > _CHECKED:
                    prefixes.note(some)
                lengths: list[int | None] = (count + converted(self.rows)).tolist()
                return lengths
        prefixes.note([*self._of_sizes(_LEARNT)])
        every = range(len(self.known))
        return [
            None if (steps := self._steps(number)) is None else prefixes.length(self._size(number), steps)
            for number in every
        ]

    def _of_sizes(self, count: int) -> Iterator[tuple[tuple[int, int], Steps]]:
        """The sizes and the steps on pixels of the first ``count`` images."""
        for number in range(min(count, len(self.known))):
            if (steps := self._steps(number)) is not None:
                yield self._size(number), steps

    def _size(self, number: int) -> tuple[int, int]:
        return self._heights[number], self._widths[number]

    def _steps(self, number: int) -> Steps | None:
        """The steps on pixels of an image; None if steps branch."""
        if self.rows is None:
            on_pixels, _, tail = parts(self.recipes[number].steps)
            return None if tail and _branches(tail) else on_pixels
        return None if self._structure is None else self._structure.steps(self.rows.numbers[number].tolist())

    def _find(self, lengths: Sequence[int | None]) -> list[ResultEntry | None]:
        """Look for results of the first ``lengths`` steps on pixels of each image, or of fewer; of all where that is
        None."""
        self.lengths, self.prefixes = lengths, self._first(lengths)
        return [
            None
            if known is None or prefix is None
            else known.last[1]
            if known.last[0] is prefix
            else result_entry_of(known, prefix)
            for known, prefix in zip(self.known, self.prefixes, strict=True)
        ]

    def _first(self, lengths: Sequence[int | None]) -> list[Prefix | None]:
        rows = self.rows
        self.halves = None if rows is None or None in lengths else self.split(lengths)
        if rows is not None and self.halves is not None:
            before, _ = self.halves
            numbers = rows.numbers[:, : before.columns].tolist()
            of_rows = zip(self._references, numbers, strict=True)
            return [prefix_of_row(reference, before, tuple(row)) for reference, row in of_rows]
        return [
            None if (steps := self._steps(number)) is None else prefix_of(self._references[number], steps[:length])
            for number, length in enumerate(lengths)
        ]

    def split(self, lengths: Sequence[int | None]) -> tuple[Structure, Structure] | None:
        """The structure before and after the first ``lengths`` steps on pixels of each image, all rows; None if
        these are different steps."""
        assert self.rows is not None
        return split(self.rows.structure, self.rows.numbers, [each or 0 for each in lengths])

    @cached_property
    def _keys(self) -> Sequence[Key | bytes | None]:
        """The keys of the files' entries; None for a file that has none, or none to be trusted."""
        if self.files is not None and not any(each is not None and each.raw for each in self.known):
            return self.files.keys().packed()
        return [None if each.key is None else cached.place(each.key, each.header) for each in self.sources]

    # -- plan what is missing -------------------------------------------------------------------------------

    def _plan(self, numbers: Sequence[int]) -> list[int]:
        """Look for results of more steps than were found, or want them; return the numbers of images whose results are
        not worth their bytes."""
        others = list[int]()
        for number in numbers:
            known, prefix, key = self.known[number], self.prefixes[number], self._keys[number]
            assert prefix is not None
            kind, there = spec_of(prefix, self._heights[number], self._widths[number], self._channels[number]), None
            if kind.pays and key is not None and known is not None and known.result is not None:
                key = variant(key, prefix)  # another result has the file's own key
                file = known.cache.look(key)
                there = None if file is None else result_entry_in([file.entries.get(RESULT)], prefix)
            if not kind.pays:
                others.append(number)
            elif there is not None:
                self.found[number] = there
            else:
                self.missing[number] = MissingResult(key, kind)
        return others

    def _without(self, numbers: Sequence[int]) -> None:
        """Let images do with the results that were found; note the files of which the cache has none, and no planes."""
        for number in numbers:
            known = self.known[number]
            if known is not None and (own := self._own(number)) is not None:
                self.found[number] = own
            elif known is None or known.planes is None:
                is_jpeg = known is None and self.files is not None
                self.uncached += [number] if is_jpeg or pays_as_a_whole(self.sources[number]) else []

    def _own(self, number: int) -> ResultEntry | None:
        """A result of some first steps of an image, from which the wanted one can be made."""
        known, prefix = self.known[number], self.prefixes[number]
        return None if known is None or prefix is None else result_entry_of(known, prefix)

    def _fit(self) -> None:
        """Want no more results than the cache has room for."""
        shelves: dict[int, list[int]] = {}
        for number, (_, kind) in self.missing.items():
            shelves.setdefault(kind.shelf, []).append(number)
        for shelf, numbers in shelves.items():
            sizes = [self.missing[number].kind.size for number in numbers]
            small = [] if self.in_use.room(shelf, sum(sizes)) else zip(numbers, sizes, strict=True)
            full = [number for number, size in small if not self.in_use.room(shelf, size)]
            for number in full:
                del self.missing[number]
            self.found |= {number: own for number in full if (own := self._own(number)) is not None}

    def _along(self) -> None:
        """Want results, not to be kept, of the other images too, so that all begin alike and are rows; not if decoding
        only the others' regions takes much less."""
        count, there = len(self.known), self.found.keys() | self.missing.keys()
        if self.halves is None or not 0 < len(there) < count or backend_of(self.selection).devices:
            return
        others = [number for number in range(count) if number not in there]
        sizes = zip(self.prefixes, self._heights, self._widths, self._channels, strict=True)
        kinds = [spec_of(prefix, *size) for prefix, *size in sizes if prefix is not None]
        alike = all(own.length == kinds[number].length for number, own in self.found.items())
        if alike and sum([self._heights[each] * self._widths[each] for each in others]) <= ALONG * count:
            self.missing |= {each: MissingResult(None, kinds[each]) for each in others}
            self.missing = dict(sorted(self.missing.items()))
            self.uncached = self.uncached if self.found else []  # whatever is missing is made; files are put in later

    def regions(self) -> Numbers:
        """The pixels that a first decode of each file that is lacking covers: all rows down to the end of the crop."""
        which = np.array(self.uncached, np.int64)
        heights, widths = np.array(self._heights)[which], np.array(self._widths)[which]
        if self.rows is None:
            ends = np.array([_bottom(self._heights[each], self._steps(each) or ()) for each in self.uncached], np.int64)
        elif self.rows.structure.forms:
            ends = _bottoms(self.rows.structure.forms[0], self.rows.numbers[which], heights)
        else:
            ends = heights
        found: Numbers = widths * ends
        return found

    # -- as the images' sources and results -----------------------------------------------------------------

    @property
    def in_use(self) -> Cache:
        """The cache, where results are wanted."""
        assert self.cache is not None
        return self.cache

    def file_key(self, number: int) -> Key | None:
        return self.sources[number].key if self.files is None else self.files.key(number)

    def headers(self, numbers: Sequence[int]) -> list[bytes | None]:
        """The headers to keep with entries of some files (``cached.packed``)."""
        if self.files is not None and not any(self.known):
            return cached.packed_together(self.files, numbers)
        return [cached.packed(self.sources[number]) for number in numbers]

    def result(self, number: int, found: ResultEntry) -> StoredResult:
        """The source of a result, the same object for all recipes of a file."""
        source, (entry, raw, length) = self.sources[number], found
        known, prefix = self._results.get((id(source), length)), self.prefixes[number]
        if known is None:
            assert prefix is not None
            known = StoredResult(Recipe(source, prefix.steps[:length]), entry, raw, self._compute)
            self._results[id(source), length] = known
        return known

    def recipe_of(self, number: int) -> Recipe:
        """The recipe of a result to be made, which may begin with a shorter one."""
        own, prefix = self._own(number), self.prefixes[number]
        assert prefix is not None
        if own is None:
            return Recipe(self.sources[number], prefix.steps)
        return Recipe(self.result(number, own), prefix.steps[own.length :])

    def rows_before(self, numbers: Sequence[int]) -> Rows | None:
        """The recipes of results to be made as rows; None if their steps differ, or some begin with shorter results."""
        if self.halves is None or self.rows is None or (any(self.known) and any(map(self._own, numbers))):
            return None
        before, _ = self.halves
        own = self.sources if len(numbers) == len(self.known) else [self.sources[number] for number in numbers]
        return Rows(own, before, self.rows.numbers[numbers][:, : before.columns])


def _known_of(sources: Sequence[Source]) -> tuple[list[Any], list[int]]:
    """What a cache has of each source, and the decoder of each (``reference_of``)."""
    if not isinstance(sources, Files):
        return [source.cached for source in sources], [reference_of(source.header) for source in sources]
    known = sources.of_cache()
    return known, [JPEG if each is None or not each.raw else reference_of(each.header) for each in known]


def _without_convert(count: int | None, steps: Steps) -> int | None:
    """The number of first steps without the one that only grey files have."""
    return count - (steps[0][0] == "convert") if count else count


@lru_cache(maxsize=256)
def _on_pixels(structure: Structure) -> Structure | None:
    """A structure's steps on pixels; None if steps branch."""
    pixels, values, tail = parts(tuple([(form.name, form.params) for form in structure.forms]))
    forms = structure.forms[: len(pixels) + len(values)]
    if _branches(tail):
        return None
    return Structure.of(*[form for form in forms if not isinstance(OPS[form.name], TensorOp)])


def _branches(steps: Steps) -> bool:
    return any(isinstance(each, Branch) for _, params in steps for each in params)


def _bottoms(first: Form, numbers: Numbers, heights: Numbers) -> Numbers:
    """The last row (excluded) of each image's first crop; the height of one that begins otherwise."""
    if first.name != "crop" or any(isinstance(each, Slot) and each.real for each in first.params):
        return heights
    given = [numbers[:, each.column] if isinstance(each, Slot) else each for each in first.params]
    tops: npt.NDArray[np.int64] = np.clip(given[0], 0, heights)
    ends: Numbers = tops + np.minimum(given[2], heights - tops)
    return ends if first.drawn < 0 else np.where(numbers[:, first.drawn] != 0, ends, heights)


def _bottom(height: int, steps: Steps) -> int:
    if not steps or steps[0][0] != "crop":
        return height
    top, _, rows, _ = steps[0][1]
    top = min(max(top, 0), height)
    return int(top + min(rows, height - top))
