"""The pixels of results that a cache has: as a source of one image, or as rows of a batch in which all begin alike.

Several results of one mode are read in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from accel.cache import reading
from accel.cache.cache import Cache
from accel.cache.entry import Entry
from accel.codec.decode import region
from accel.codec.engines import Box, Pixels
from accel.codec.header import Raw
from accel.planning.order import parts
from accel.recipes.options import Selection
from accel.recipes.recipe import Recipe, Source
from accel.recipes.rows import Form, Numbers, Rows, Structure
from accel.recipes.sources import Pictures, Sources, table_of
from accel.runtime.memo.result_entries import ResultEntry
from accel.system import counters, memory
from accel.system.memory import Scratch

Compute = Callable[[Recipe], npt.NDArray[np.uint8]]

_parts = Scratch()
_MOSTLY = 2  # results of at most so many times the pixels of a crop are read whole


class StoredResult(Source):
    """A source of pixels that a cache has; if they are damaged, the recipe that they are ``of`` is computed anew."""

    __slots__ = ("compute", "entry", "of")

    def __init__(self, of: Recipe, entry: Entry, raw: Raw, compute: Compute) -> None:
        super().__init__(None, raw, of.source.name, of.source.selection)
        self.of, self.entry, self.compute = of, entry, compute

    def _read(self) -> bytes | memoryview:
        return self.region((0, 0, self.header.height, self.header.width), self.header.channels).tobytes()

    def region(self, box: Box, depth: int) -> Pixels:
        """Read a box (top, left, height, width) of pixels: uint8 [height, width, depth]. Only its bands are read."""
        ends, width, own = self.entry.ends, self.header.width, self.header.channels
        top, left, height, shown = box
        band = max(ends[0] // (width * own), 1)  # its rows
        first, last = top // band, -(-(top + height) // band)
        begin, end = self.entry.span(first, last)
        out = _parts.take(end - begin)
        if self.of.source.cached.cache.read(self.entry, first, last, out):
            counters.count(counters.RESULT_HITS)
            return region(out.reshape(-1, width, own), (top - first * band, left, height, shown), depth)
        return region(self.computed(), box, depth)

    def computed(self) -> Pixels:
        """Compute all pixels anew, as the entry is damaged: uint8 [height, width, channels]."""
        known = self.of.source.cached
        damaged = {name: None for name in ("result", "pixels") if getattr(known, name) is self.entry}
        self.of.source.cached = replace(known, **damaged)
        whole = np.ascontiguousarray(self.compute(self.of))
        return whole.reshape(self.header.height, self.header.width, -1)


class StoredResults(Sources):
    """Results of one mode that are not read yet; they are read together, or one by one as sources.

    Attributes:
        raws: the size of each. mode: of all.
    """

    __slots__ = ("_cache", "_entries", "_found", "_source_of", "_table", "mode", "raws")

    def __init__(
        self,
        found: Sequence[ResultEntry],
        cache: Cache,
        selection: Selection,
        source_of: Callable[[int, ResultEntry], Source],
    ) -> None:
        """``source_of``: makes the source of an image's result, by the image's number."""
        super().__init__(selection)
        self._found, self._cache, self._source_of = found, cache, source_of
        self._entries, self.raws, _ = zip(*found, strict=True)
        self.mode, self._table = self.raws[0].mode, table_of(self.raws)

    def __len__(self) -> int:
        return len(self._entries)

    def _one(self, place: int) -> Source:
        return self._source_of(place, self._found[place])

    def table(self) -> Numbers:
        return self._table

    def read(self, out: Pixels) -> bool:
        """Read all, one behind the other; False if one is damaged, and each must be read by itself."""
        if self._cache.read_all([(entry, 0, entry.parts) for entry in self._entries], out):
            return False
        self.add_hits(len(self))
        return True

    def entry_table(self) -> reading.EntryTable | None:
        """All results in the form that compiled code reads; None if each must be read by itself."""
        return self._cache.together(self._entries)

    def add_hits(self, count: int) -> None:
        """Count results that were read and are sound."""
        counters.count(counters.RESULT_HITS, count)

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (list(self),)


def on_device(sources: Sequence[Source], structure: Structure, row: Sequence[int]) -> Pictures | None:
    """Pixels of all images of rows as an accelerator plans them: read, and in one array; None if they cannot be.

    ``structure``, ``row``: the steps after the pixels.
    """
    if isinstance(sources, StoredResults):
        return _read(sources) if _shows_most(structure, row, sources.raws[0]) else None
    return sources if isinstance(sources, Pictures) else None


def split(structure: Structure, numbers: Numbers, lengths: Sequence[int]) -> tuple[Structure, Structure] | None:
    """Split a structure after the first ``lengths`` steps of each image; None if these are different steps."""
    forms = structure.forms
    if all(form.drawn < 0 for form in forms):
        return _split_at(structure, lengths[0]) if len(set(lengths)) == 1 else None
    there = [np.ones(len(numbers), bool) if form.drawn < 0 else numbers[:, form.drawn] != 0 for form in forms]
    behind = np.cumsum([np.zeros(len(numbers), int), *there], axis=0) == lengths
    if not (same := behind.all(axis=1)).any():
        return None
    return _split_at(structure, int(same.argmax()))


def converted(rows: Rows) -> npt.NDArray[np.bool_]:
    """Whether each image begins with the step that only grey files have (a conversion): bool [images]."""
    name, _, drawn = (rows.structure.forms or (Form(""),))[0]
    if name != "convert" or drawn < 0:
        return np.full(len(rows.numbers), name == "convert")
    found: npt.NDArray[np.bool_] = rows.numbers[:, drawn] != 0
    return found


@lru_cache(maxsize=64)
def _split_at(structure: Structure, count: int) -> tuple[Structure, Structure] | None:
    first = structure.forms[:count]
    if len(parts(tuple([(form.name, form.params) for form in first]))[0]) < count:  # a step was moved to the front
        return None
    return Structure.of(*first), Structure.of(*structure.forms[count:])


def _shows_most(structure: Structure, row: Sequence[int], result: Raw) -> bool:
    """Whether the first step shows so much of a result that all of it may be read; results are of one size."""
    steps = structure.steps(row)
    if not steps or steps[0][0] != "crop":
        return True
    _, _, height, width = steps[0][1]
    return bool(_MOSTLY * height * width >= result.height * result.width)


def _read(together: StoredResults) -> Pictures | None:
    """Read all results into one array; None if they have several sizes, or one is damaged."""
    header = together.raws[0]
    if any(each != header for each in together.raws):
        return None
    shape = len(together), header.height, header.width, *((3,) if header.channels == 3 else ())
    pixels = memory.results.empty(shape, torch.uint8).numpy()
    whole = together.read(pixels)
    return Pictures(pixels, "results of a cache", together.selection) if whole else None
