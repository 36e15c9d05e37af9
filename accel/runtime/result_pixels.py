"""The pixels of results that a cache has: a source for one image, and for a batch that begins with them alike, rows.

Of results of one size several are read in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import thread_time

import numpy as np
import numpy.typing as npt
import torch

from accel.backend import backend_of
from accel.cache.entry import Entry
from accel.codec.decode import region
from accel.codec.engines import Box, Pixels
from accel.codec.header import Raw
from accel.planning.order import parts
from accel.recipe import Recipe, Source
from accel.rows import Form, Numbers, Rows, Structure
from accel.runtime.result_entries import channels
from accel.sources import Pictures, Sources, Unread
from accel.system import counters, memory
from accel.system.memory import Scratch

Compute = Callable[[Recipe], npt.NDArray[np.uint8]]

_parts = Scratch()
_MOSTLY = 2  # times the pixels that a crop shows: results that are no larger are read whole


class Result(Source):
    """Pixels that a cache has; where they are damaged, what they are ``of`` is computed anew."""

    __slots__ = ("compute", "entry", "of")

    def __init__(self, of: Recipe, entry: Entry, raw: Raw, compute: Compute) -> None:
        super().__init__(None, raw, of.source.name, of.source.selection)
        self.of, self.entry, self.compute = of, entry, compute

    def _read(self) -> bytes | memoryview:
        return self.region((0, 0, self.header.height, self.header.width), channels(self.header)).tobytes()

    def region(self, box: Box, depth: int) -> Pixels:
        """The pixels of a box (top, left, height, width), uint8 [height, width, depth]; only its bands are read."""
        ends, width, own = self.entry.ends, self.header.width, channels(self.header)
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
        """All pixels, computed anew, of one whose entry is damaged."""
        known = self.of.source.cached
        damaged = {name: None for name in ("result", "pixels") if getattr(known, name) is self.entry}
        self.of.source.cached = known._replace(**damaged)
        whole = np.ascontiguousarray(self.compute(self.of))
        return whole.reshape(self.header.height, self.header.width, -1)


def rows_after(
    rows: Rows, sources: Sequence[Source], lengths: Sequence[int], pictures: Sources | None = None
) -> Rows | None:
    """Rows whose images begin with pixels of so many of their first steps; None where these are not the same ones.

    ``pictures``: the same pixels as ``sources``, where they are in one piece of memory.
    """
    structure = structure_after(rows, lengths)
    if structure is None:
        return None
    numbers = rows.numbers[:, : structure.columns]
    if pictures is None and _shows_most(structure, numbers[0].tolist(), sources[0]):
        pictures = _together(sources)
    if backend_of(rows.selection).devices:  # an accelerator plans rows of files, or of pictures
        pictures = _read(pictures) if isinstance(pictures, Unread) else pictures
        return Rows(pictures, structure, numbers) if isinstance(pictures, Pictures) else None
    return Rows(sources if pictures is None else pictures, structure, numbers)


def rows_before(rows: Rows, which: Sequence[int], lengths: Sequence[int]) -> Rows | None:
    """Rows of so many of the first steps of some of the images; None where these are not the same ones."""
    numbers = rows.numbers[which]
    forms = _split(rows.structure.forms, numbers, lengths)
    if forms is None:
        return None
    structure = Structure.of(*forms[0])
    every = which == [*range(len(rows))]
    sources = rows.sources if every else [rows.sources[number] for number in which]
    return Rows(sources, structure, numbers[:, : structure.columns])


def structure_after(rows: Rows, lengths: Sequence[int]) -> Structure | None:
    """What is left of rows behind so many of their first steps; None where these are not the same ones."""
    forms = _split(rows.structure.forms, rows.numbers, lengths)
    return None if forms is None else Structure.of(*forms[1])


def _split(
    forms: tuple[Form, ...], numbers: Numbers, lengths: Sequence[int]
) -> tuple[tuple[Form, ...], tuple[Form, ...]] | None:
    """The first forms, so many of which each image has, and the others."""
    there = [np.ones(len(numbers), bool) if form.drawn < 0 else numbers[:, form.drawn] != 0 for form in forms]
    behind = np.cumsum([np.zeros(len(numbers), int), *there], axis=0) == lengths
    if not (same := behind.all(axis=1)).any():
        return None
    count = int(same.argmax())
    first = tuple([(form.name, form.params) for form in forms[:count]])
    if len(parts(first)[0]) < count:  # a step on pixels that led others
        return None
    return forms[:count], forms[count:]


def _shows_most(structure: Structure, row: Sequence[int], result: Source) -> bool:
    """Whether the first step shows most of a result, so that all of it may be read; they are of one size."""
    steps = structure.steps(row)
    if not steps or steps[0][0] != "crop":
        return True
    _, _, height, width = steps[0][1]
    return bool(_MOSTLY * height * width >= result.header.height * result.header.width)


def _together(sources: Sequence[Source]) -> Unread | None:
    """Results that are read together; None where they are of several sizes, or some are there already."""
    results = [each for each in sources if isinstance(each, Result)]
    if len(results) < len(sources) or any(each.header != results[0].header for each in results):
        return None
    cache = results[0].of.source.cached.cache

    def read(which: range, out: Pixels) -> bool:
        wanted = [results[place].entry for place in which]
        begun = thread_time() if cache.worth.asks else 0.0
        if cache.read_all([(entry, 0, entry.parts) for entry in wanted], out):
            return False
        if begun:
            cache.worth.read(1e6 * (thread_time() - begun), out.nbytes)
        counters.count(counters.RESULT_HITS, len(wanted))
        return True

    return Unread(results, read)


def _read(together: Unread) -> Pictures | None:
    """All of them as one array; None where one is damaged."""
    header = together.header
    shape = len(together), header.height, header.width, *((3,) if channels(header) == 3 else ())
    pixels = memory.results.empty(shape, torch.uint8).numpy()
    whole = together.read(range(len(pixels)), pixels)
    return Pictures(pixels, "results of a cache", together.selection) if whole else None
