"""Batches of files that a cache has no results of, handled without making sources: if first steps come each time, their
results are made, kept and read together; else planes are kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import process_time
from typing import NamedTuple

import torch

from accel.backend import backend_of
from accel.cache.cache import Cache
from accel.codec import stream_index
from accel.codec.engines import Pixels
from accel.codec.header import Header
from accel.codec.store import key_of_row
from accel.files import fields as of_file
from accel.planning import columns
from accel.recipe import Source
from accel.rows import Rows, Structure
from accel.runtime import cached
from accel.runtime.lacking import of_rows
from accel.runtime.result_entries import Told, size_of, told
from accel.runtime.result_making import Run, strict
from accel.runtime.result_pixels import converted, split
from accel.runtime.results import ALONG, Fill, first_steps
from accel.sources import Files, PicturesApart, Sources
from accel.system import counters

_FRAME = slice(of_file.SCAN, of_file.WIDTH + 1)
"""The fields of ``Files.known`` that describe the picture: scan, components, height and width."""


class Unknown(NamedTuple):
    """A batch of JPEG files, none of which has a result in the cache.

    Attributes:
        rows: the batch. lacking: the numbers of those that have no planes there either.
        length: the number of first steps that come each time, without the one that only grey files have.
    """

    rows: Rows
    lacking: Sequence[int]
    length: int

    def fills(self, fill: Fill) -> bool:
        """Whether its recipes begin otherwise each time; if so, ``fill`` is called, so that planes are kept."""
        if self.lacking and self.length == 0:
            fill(of_rows(self.rows, self.lacking))
        return self.length == 0


def unknown(rows: Rows) -> Unknown | None:
    """Describe a batch, judging by some of its images; None if it is no such batch, or each must be looked at."""
    sources = rows.sources
    files = isinstance(sources, Files) or not isinstance(sources, Sources)
    lacking = _without_planes(sources) if files and cached.of(rows.selection.options) is not None else None
    if lacking is None:
        return None
    length = first_steps(rows)
    return None if length is None else Unknown(rows, lacking, length)


def _without_planes(sources: Sequence[Source]) -> list[int] | None:
    """The numbers of JPEG files without planes in the cache; None if some are no JPEG or may have other entries."""
    looked: Iterable[tuple[int, Source]] = enumerate(sources)
    if isinstance(sources, Files):  # a file of which no source was made has no entries
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


class Anew(NamedTuple):
    """Results to be made of a batch's files.

    Attributes:
        rows: the batch. before: rows of the steps that the results are of. after: the structure of the other steps.
        keys: of the files. results: the entry of each. kept: the numbers of those that are kept; the others are made
            so that all begin alike. shelf: theirs in the cache.
    """

    rows: Rows
    before: Rows
    after: Structure
    keys: Sequence[bytes]
    results: Sequence[Told]
    kept: Sequence[int]
    shelf: int
    cache: Cache

    def made(self, run: Run) -> Rows | None:
        """Make the results; return the batch that begins with them, None if some file cannot be decoded."""
        planned = columns.plan_apart(self.before)
        if planned is None:
            return None
        # indexes are useful for files that another pipeline has decoded, and for those that will be decoded again
        indexed = len(self.kept) < len(self.rows) or stream_index.knows(key_of_row(self.keys[0]))
        since = process_time()
        values = run(strict(self.rows.selection, indexed=indexed), [planned])[0]
        if not isinstance(values, torch.Tensor):
            return None
        self._took(process_time() - since)
        pixels, parts = values.numpy(), planned.columns.parts
        self._keep(pixels, parts[:, 0].tolist())
        name, selection = "results that a cache takes", self.rows.selection
        sources = PicturesApart(pixels, parts, self.results[0].raw.mode, name, selection)
        return Rows(sources, self.after, self.rows.numbers[:, : self.after.columns])

    def _took(self, seconds: float) -> None:
        """Record the time that making all results took."""
        sizes = [size_of(each.raw) for each in self.results]
        own = sum([sizes[number] for number in self.kept])
        self.cache.worth.made(self.shelf, 1e6 * seconds * own / sum(sizes), own)

    def _keep(self, pixels: Pixels, begins: Sequence[int]) -> None:
        """Keep results, whose pixels begin at ``begins``."""
        said, mark = self._said(), cached.tag()
        told = [(self.keys[number], said[number], self.results[number]) for number in self.kept]
        files = [(key, header, mark + (of.said or b""), of.ends) for key, header, of in told]
        done = self.cache.put_all(files, self.shelf, pixels.data, [begins[number] for number in self.kept])
        counters.count(counters.RESULTS, sum(done))

    def _said(self) -> list[bytes]:
        """The packed headers of the files."""
        files = self.before.sources
        assert isinstance(files, Files)
        content, starts = files.content.data, files.places[:, 0].tolist()
        return [
            cached.packed_jpeg(components == 3, width, height, bytes(content[start : start + scan]))
            for start, (scan, components, height, width) in zip(starts, files.known[:, _FRAME].tolist(), strict=True)
        ]


def of(unknown: Unknown) -> Anew | None:
    """The results to make of a batch; None if each image must be looked at, or the backend is an accelerator's."""
    rows, lacking, length = unknown
    files, cache = rows.sources, cached.of(rows.selection.options)
    if cache is None or not isinstance(files, Files) or len(lacking) < len(rows) or not files.plain().all():
        return None
    keys = [key for key in files.keys().packed() if key is not None]
    structures = split(rows.structure, rows.numbers, (length + converted(rows)).tolist())
    if structures is None or len({*keys}) < len(rows) or backend_of(rows.selection).devices:
        return None
    first, after = structures
    numbers = rows.numbers[:, : first.columns]
    heights, widths, colour = (each.tolist() for each in files.sizes())
    results = [
        told(first, height, width, 3 if of_colour else 1, tuple(row))
        for height, width, of_colour, row in zip(heights, widths, colour, numbers.tolist(), strict=True)
    ]
    kept = [number for number, each in enumerate(results) if each.said is not None]
    shelves = {results[number].shelf for number in kept}
    if len(shelves) != 1 or len({each.raw.mode for each in results}) > 1:
        return None
    shelf = shelves.pop()
    along = sum([heights[number] * widths[number] for number, each in enumerate(results) if each.said is None])
    if along > ALONG * len(rows) or not cache.room(shelf, sum([size_of(results[number].raw) for number in kept])):
        return None
    return Anew(rows, Rows(files, first, numbers), after, keys, results, kept, shelf, cache)
