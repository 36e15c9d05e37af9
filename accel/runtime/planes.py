"""Half-decoded pictures (``accel.codec.jpeg.planes``) of a cache, read in place of files, put in with a decode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import thread_time
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.cache import reading
from accel.cache.cache import Cache
from accel.cache.entry import PLANES
from accel.cache.reading_fields import COUNT
from accel.codec import decode, stream_index
from accel.codec.engines import Box, Pixels
from accel.codec.header import Header, Raw
from accel.codec.jpeg import planes
from accel.codec.jpeg.planes_fields import META_SIZE
from accel.planning.order import Steps
from accel.recipe import Source
from accel.runtime import cached, pace
from accel.system import counters
from accel.system.memory import Scratch

_packed, _pixels = Scratch(), Scratch()
_MOST = 0.75


def packed(source: Source, box: Box) -> planes.Packed | None:
    """What a cache has of a file's planes, as far as a region needs it; None where it has none, or they are damaged."""
    entry = None if source.cached is None else source.cached.planes
    if entry is None:
        return None
    meta = entry.meta[cached.MARK :]
    first, last = planes.needed(meta, box)
    if not 0 <= first < last <= len(entry.ends):
        return None
    begin, end = entry.span(first, last)
    parts = _packed.take(end - begin)
    if not source.cached.cache.read(entry, first, last, parts):
        return None
    counters.count(counters.PLANE_HITS)
    return planes.Packed(meta, first, parts)


class Together(NamedTuple):
    """What a cache has of many files' planes, for compiled code that reads them (``reading_kernels``).

    Attributes:
        files: that are read, which are to be held. largest: the bytes of the largest entry.
        descriptions: uint16 [files, META_SIZE]. asked, numbers: ``reading.asked``, and begins: where in numbers, which
            are anew for each call.
    """

    files: Sequence[Any]
    largest: int
    descriptions: npt.NDArray[np.uint16]
    asked: reading.Numbers
    numbers: npt.NDArray[np.uint32]
    begins: reading.Numbers


def has(source: Source) -> bool:
    """Whether a cache has a file's planes, as far as is known without reading them, and they are to be used."""
    known = source.cached
    if known is None or known.planes is None or source.picture is not None:
        return False
    return isinstance(source.header, Header) and len(known.planes.meta) == cached.MARK + 2 * META_SIZE


def fills(source: Source) -> bool:
    """Whether a file is put in now, or its decoding is measured, because others are."""
    known = source.cached
    return known is not None and (known.fills or known.timed)


def together(sources: Sequence[Source]) -> Together | None:
    """The planes of files that a cache ``has``; None where they are to be read one by one."""
    caches = {source.cached.cache for source in sources}
    if len(caches) != 1:
        return None
    entries = [source.cached.planes for source in sources]
    files = caches.pop().files(entries)
    if len(files) < len(entries):
        return None
    asked = reading.asked([(file.descriptor, entry, 0, 0) for file, entry in zip(files, entries, strict=True)])
    if asked is None:
        return None
    meta = np.frombuffer(b"".join([entry.meta[cached.MARK :] for entry in entries]), np.uint16).reshape(-1, META_SIZE)
    rows, numbers = asked
    counts = 3 * rows[:, COUNT]
    return Together(files, max(entry.size for entry in entries), meta, rows, numbers, np.cumsum(counts) - counts)


def used(sources: Sequence[Source], count: int, took: float) -> None:
    """Note that the planes of so many of these files were used, which took so many microseconds with all steps."""
    counters.count(counters.PLANE_HITS, count)
    size = sum(source.cached.planes.size for source in sources)
    sources[0].cached.cache.worth.found(PLANES, took, count, size * count // len(sources))


def decoded_by_index(source: Source, used: int, count: int, took: float) -> None:
    """Note that so many files, such as this one, were decoded, which took so many microseconds with all steps.

    ``used``: of how many an index was; where that is not most of them, they took longer than they will.
    """
    cache = cached.of(source.selection.options)
    if cache is not None and count and used >= _MOST * count:
        cache.worth.decoded(took, count)


def found(sources: Sequence[Source], boxes: Sequence[Box]) -> None:
    """Note regions of files that a cache ``has``, which are read together: what that saves pays for others."""
    regions = [pace.pixels(source.header, box) for source, box in zip(sources, boxes, strict=True)]
    pace.of(sources[0].cached.cache).found(sum(regions))


def region(source: Source, box: Box, channels: int) -> Pixels | None:
    """The region of a file of which the cache has planes; None where it has none, or they are damaged."""
    known = source.cached
    if known.planes is None:
        return None
    begun = thread_time()
    found = packed(source, box)
    if found is None:
        return None
    out = _pixels.take(box[2] * box[3] * channels).reshape(box[2], box[3], channels)
    pixels = planes.region(found.meta, found.parts, found.first, box, channels, out)
    if pixels is not None:
        pace.of(known.cache).read(pace.pixels(source.header, box), 1e6 * (thread_time() - begun))
    return pixels


def fits(source: Source, engine: str = "auto") -> bool:
    """Whether a file may have planes."""
    header = source.header
    return isinstance(header, Header) and decode.choose(header, engine) == "accel" and planes.fits(header)


def to_fill(source: Source) -> bool:
    """Have a file's planes be put in when the host decodes it; False: there is no cache, or no room for them."""
    cache = cached.of(source.selection.options)
    if cache is None or source.key is None or not fits(source) or not room(cache, source.header):
        return False
    source.cached = (source.cached or cached.Known(cache))._replace(fills=True)
    return True


def mark_all(sources: Sequence[Source], steps: Sequence[Steps]) -> None:
    """Mark files that the cache lacks; the accelerator's backend says which of them the host decodes and puts in."""
    for source in sources:
        _mark(source, fills=True)


def mark_affordable(sources: Sequence[Source], steps: Sequence[Steps]) -> None:
    """Mark of files that the cache lacks those for which there is time now (``pace``), and those to be measured.

    ``steps``: that each begins with, which say about what is decoded of it.
    """
    cache = cached.of(sources[0].selection.options)
    files: dict[int, tuple[Source, Box]] = {}
    for source, first in zip(sources, steps, strict=True):
        if isinstance(source.header, Raw):
            _mark(source, fills=True)
        elif fits(source):
            files[id(source)] = source, _region(source, first)
    largest = max(files.values(), key=lambda each: each[0].header.height * each[0].header.width, default=None)
    if cache is None or largest is None or not room(cache, largest[0].header):
        return
    own, pictures = pace.of(cache), [*files.values()]
    indexed = stream_index.knows(pictures[0][0].key)
    chosen, timed = own.choose([(source.header, box) for source, box in pictures], indexed=indexed)
    for number in chosen:
        _mark(pictures[number][0], fills=True)
    for number in timed:
        _mark(pictures[number][0], timed=True)


def _mark(source: Source, *, fills: bool = False, timed: bool = False) -> None:
    cache = cached.of(source.selection.options)
    if cache is not None:
        source.cached = (source.cached or cached.Known(cache))._replace(fills=fills, timed=timed)


def _region(source: Source, steps: Steps) -> Box:
    """About what is decoded for steps."""
    height, width = source.header.height, source.header.width
    if not steps or steps[0][0] != "crop":
        return 0, 0, height, width
    top, left, rows, columns = steps[0][1]
    top, left = min(max(top, 0), height), min(max(left, 0), width)
    return top, left, min(rows, height - top), min(columns, width - left)


def room(cache: Cache, header: Header | Raw) -> bool:
    """Whether a cache takes more planes."""
    return cache.room(PLANES, header.height * header.width * 3 // 2)  # which photos hardly exceed


def decoded(
    source: Source, box: Box, channels: int, engine: str
) -> tuple[Pixels | None, Callable[[float], None] | None]:
    """The region of a file whose planes the cache takes now; None where it has to be decoded otherwise.

    And of one whose decoding is measured, what wants to know the microseconds.
    """
    known, key, header = source.cached, source.key, source.header
    own = pace.of(known.cache)
    if known.timed:
        return None, partial(own.decoded, pace.pixels(header, box))
    if key is None or not (known.fills or known.planes) or not room(known.cache, header) or not fits(source, engine):
        return None, None
    data, begun = source.data, thread_time()
    said, made = cached.packed(source), planes.encode(data, box, channels=channels)
    if said is None or made is None:
        return None, None
    if known.cache.put(key, said, PLANES, made.content, cached.tag() + made.meta, made.ends):
        counters.count(counters.PLANES)
        own.filled(header.height * header.width, 1e6 * (thread_time() - begun))
    return made.pixels, None
