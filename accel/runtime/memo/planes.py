"""Half-decoded pictures (``accel.codec.jpeg.planes``) in a cache: read in place of files, put in with a decode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import thread_time
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.cache import reading
from accel.cache.cache import Cache
from accel.cache.entry import PLANES
from accel.codec import decode, stream_index
from accel.codec.engines import Box, Pixels
from accel.codec.header import Header, Raw
from accel.codec.jpeg import planes
from accel.codec.jpeg.planes_fields import META_SIZE
from accel.recipes.options import Selection
from accel.recipes.recipe import Source
from accel.recipes.sources import Files, Numbers
from accel.runtime.memo import cached, pace
from accel.system import counters
from accel.system.memory import Scratch

_PART = 4  # the time of one file of a batch in so many is enough to estimate that of a file
_MOST = 0.75  # if at least this part of the files had an index, their time counts as that of indexed files

_packed, _pixels = Scratch(), Scratch()


class PlaneTable(NamedTuple):
    """The planes of many files in a cache, for compiled code that reads them (``reading_kernels``).

    Attributes:
        files: the files to read, which must be kept open. largest: the bytes of the largest entry.
        descriptions: uint16 [files, META_SIZE]. rows, numbers, begins: see ``reading.EntryTable``; new for each call.
    """

    files: Sequence[Any]
    largest: int
    descriptions: npt.NDArray[np.uint16]
    rows: reading.Numbers
    numbers: npt.NDArray[np.uint32]
    begins: reading.Numbers


def has(source: Source) -> bool:
    """Whether to use a cache's planes of a file: it has some, judging without reading them, and no picture is kept."""
    known = source.cached
    if known is None or known.planes is None or source.picture is not None:
        return False
    return isinstance(source.header, Header) and len(known.planes.meta) == cached.MARK + 2 * META_SIZE


def together(sources: Sequence[Source]) -> PlaneTable | None:
    """The planes of files for which ``has`` is true; None if they must be read one by one."""
    caches = {source.cached.cache for source in sources}
    if len(caches) != 1:
        return None
    entries = [source.cached.planes for source in sources]
    table = caches.pop().together(entries)
    if table is None:
        return None
    meta = np.frombuffer(b"".join([entry.meta[cached.MARK :] for entry in entries]), np.uint16).reshape(-1, META_SIZE)
    return PlaneTable(table.files, max(entry.size for entry in entries), meta, *table[1:])


def add_hits(sources: Sequence[Source], regions: int, of: int, count: int, took: float) -> None:
    """Record that regions of ``count`` of these files were read, in ``took`` microseconds with all steps; the savings
    pay for other files.

    Args:
        regions: the sum of their ``pace.pixels``. of: the number of files in the batch.
    """
    if not count:  # another thread has taken all
        return
    counters.count(counters.PLANE_HITS, count)
    cache, part = sources[0].cached.cache, count / len(sources)
    size = round(part * sum(source.cached.planes.size for source in sources))
    regions = round(part * regions)
    if _tells(len(sources), of):
        cache.worth.add_hits(PLANES, took, regions, size)
    pace.of(cache).add_hits(regions, count)


def add_decodes(selection: Selection, files: int, regions: int, of: int, indexed: int, count: int, took: float) -> None:
    """Record that regions of ``count`` files were decoded, in ``took`` microseconds with all steps.

    Args:
        files: the number that several threads decoded together. regions: the sum of their ``pace.pixels``.
        of: the number of files in the batch.
        indexed: the number of files that had an index: none the first time. If only some had, the time is not used.
    """
    cache = cached.of(selection.options) if count else None
    if cache is not None and _tells(files, of) and not 0 < indexed < _MOST * count:
        rate = cache.worth.by_index if indexed else cache.worth.first
        rate.add(took, round(regions * count / files))


def _tells(files: int, of: int) -> bool:
    """Whether so many files of a batch are enough to time: with few, the time is mostly that of the call itself."""
    return _PART * files >= of


def region(source: Source, box: Box, channels: int) -> Pixels | None:
    """A region decoded from a file's planes in the cache; None if it has none, or they are damaged."""
    known, entry = source.cached, source.cached.planes
    if entry is None:
        return None
    meta = entry.meta[cached.MARK :]
    first, last = planes.needed(meta, box)
    if not 0 <= first < last <= len(entry.ends):
        return None
    begin, end = entry.span(first, last)
    parts = _packed.take(end - begin)
    if not known.cache.read(entry, first, last, parts):
        return None
    counters.count(counters.PLANE_HITS)
    out = _pixels.take(box[2] * box[3] * channels).reshape(box[2], box[3], channels)
    pixels = planes.region(meta, parts, first, box, channels, out)
    if pixels is not None:
        pace.of(known.cache).add_hits(pace.pixels(source.header, box), 1)
    return pixels


def fits(source: Source, engine: str = "auto") -> bool:
    """Whether a file can have planes."""
    header = source.header
    return isinstance(header, Header) and decode.choose(header, engine) == "accel"


def to_fill(source: Source) -> bool:
    """Mark a file so that its planes are put in when the host decodes it; False if there is no cache, or no room."""
    cache = cached.of(source.selection.options)
    if cache is None or source.key is None or not fits(source) or not room(cache, _size(source.header)):
        return False
    _mark(source)
    return True


def mark_affordable(sources: Sequence[Source], lacking: Numbers, regions: Numbers) -> None:
    """Mark those files for which there is time now (``pace``).

    ``lacking``: the positions of the sources that a cache lacks. ``regions``: for each of these the pixels that a first
    decode covers, all rows down to the end of its crop.
    """
    if isinstance(sources, Files):
        heights, widths, _ = sources.sizes()
        fitting, whole = sources.plain() & decode.agrees("accel"), heights * widths
        fitting, whole = fitting[lacking], whole[lacking]
    else:
        fitting, whole = _of_each([sources[number] for number in lacking.tolist()])
    lacking, regions, whole = lacking[fitting], regions[fitting], whole[fitting]
    if not len(lacking):
        return
    first = int(lacking[0])
    if isinstance(sources, Files):
        selection, key = sources.selection, sources.key(first)
    else:
        selection, key = sources[first].selection, sources[first].key
    cache = cached.of(selection.options)
    if cache is not None and room(cache, int(whole.max())):
        for chosen in pace.of(cache).choose(regions, whole, indexed=stream_index.knows(key)):
            _mark(sources[int(lacking[chosen])])


def _of_each(sources: Sequence[Source]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """For each file, whether it can have planes (a repeated one: once), and its pixels. Mark those that are no JPEG."""
    seen, fitting = set[int](), []
    for source in sources:
        if isinstance(source.header, Raw):
            _mark(source)
        fitting.append(id(source) not in seen and fits(source))
        seen.add(id(source))
    return np.array(fitting), np.array([_size(source.header) for source in sources])


def _mark(source: Source) -> None:
    cache = cached.of(source.selection.options)
    if cache is not None:
        source.cached = replace(source.cached or cached.FileEntries(cache), fills=True)


def room(cache: Cache, pixels: int) -> bool:
    """Whether a cache has room for the planes of a file of ``pixels`` pixels."""
    return cache.room(PLANES, pixels * 3 // 2)  # which photos hardly exceed


def _size(header: Header | Raw) -> int:
    return header.height * header.width


def decoded(source: Source, box: Box, channels: int, engine: str) -> Pixels | None:
    """Decode a region of a file and put the file's planes into the cache; None if it must be decoded otherwise."""
    known, key, header = source.cached, source.key, source.header
    if (
        key is None
        or not (known.fills or known.planes)
        or not room(known.cache, _size(header))
        or not fits(source, engine)
    ):
        return None
    data, start = source.data, thread_time()
    header_bytes, made = cached.packed(source), planes.encode(data, box, channels=channels)
    if header_bytes is None or made is None:
        return None
    if known.cache.put(key, header_bytes, PLANES, made.content, cached.tag() + made.meta, made.ends):
        counters.count(counters.PLANES)
        known.cache.worth.filling.add(1e6 * (thread_time() - start), header.height * header.width)
    return made.pixels
