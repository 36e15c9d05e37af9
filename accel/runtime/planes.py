"""Half-decoded pictures (``accel.codec.jpeg.planes``) of a cache, read in place of files, put in with a decode."""

from __future__ import annotations

from collections.abc import Sequence
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
from accel.options import Selection
from accel.recipe import Source
from accel.runtime import cached, pace
from accel.runtime.lacking import Lacking
from accel.sources import Files
from accel.system import counters
from accel.system.memory import Scratch

_PART = 4  # one file of a batch in so many is enough to tell what a file takes
_MOST = 0.75  # of these files, of which an index was: they took as long as all will

_packed, _pixels = Scratch(), Scratch()


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
        descriptions: uint16 [files, META_SIZE]. asked, numbers, begins: see ``reading.Together``; anew for each call.
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


def together(sources: Sequence[Source]) -> Together | None:
    """The planes of files that a cache ``has``; None where they are to be read one by one."""
    caches = {source.cached.cache for source in sources}
    if len(caches) != 1:
        return None
    entries = [source.cached.planes for source in sources]
    asked = caches.pop().together(entries)
    if asked is None:
        return None
    meta = np.frombuffer(b"".join([entry.meta[cached.MARK :] for entry in entries]), np.uint16).reshape(-1, META_SIZE)
    return Together(asked.held, max(entry.size for entry in entries), meta, *asked[1:])


def used(sources: Sequence[Source], regions: int, of: int, count: int, took: float) -> None:
    """Note that regions of so many of these files were read, which took so many microseconds with all steps: what that
    saves pays for others.

    Args:
        regions: the ``pace.pixels`` of all of them. of: the files of the batch.
    """
    if not count:  # another thread has taken all
        return
    counters.count(counters.PLANE_HITS, count)
    cache, part = sources[0].cached.cache, count / len(sources)
    size = round(part * sum(source.cached.planes.size for source in sources))
    regions = round(part * regions)
    if _tells(len(sources), of):
        cache.worth.found(PLANES, took, regions, size)
    pace.of(cache).found(regions, count)


def decoded_together(
    selection: Selection, files: int, regions: int, of: int, used: int, count: int, took: float
) -> None:
    """Note that regions of so many files were decoded, which took so many microseconds with all steps.

    Args:
        files: of which these were some, and others were another thread's. regions: the ``pace.pixels`` of all of them.
        of: the files of the batch.
        used: of how many an index was: none, the first time; of some alone, it says nothing.
    """
    cache = cached.of(selection.options) if count else None
    if cache is not None and _tells(files, of) and not 0 < used < _MOST * count:
        rate = cache.worth.by_index if used else cache.worth.first
        rate.add(took, round(regions * count / files))


def _tells(files: int, of: int) -> bool:
    """Whether the time of so many files of a batch tells what others take: a call's own is that of few."""
    return _PART * files >= of


def region(source: Source, box: Box, channels: int) -> Pixels | None:
    """The region of a file of which the cache has planes; None where it has none, or they are damaged."""
    known = source.cached
    if known.planes is None:
        return None
    found = packed(source, box)
    if found is None:
        return None
    out = _pixels.take(box[2] * box[3] * channels).reshape(box[2], box[3], channels)
    pixels = planes.region(found.meta, found.parts, found.first, box, channels, out)
    if pixels is not None:
        pace.of(known.cache).found(pace.pixels(source.header, box), 1)
    return pixels


def fits(source: Source, engine: str = "auto") -> bool:
    """Whether a file may have planes."""
    header = source.header
    return isinstance(header, Header) and decode.choose(header, engine) == "accel" and planes.fits(header)


def to_fill(source: Source) -> bool:
    """Have a file's planes be put in when the host decodes it; False: there is no cache, or no room for them."""
    cache = cached.of(source.selection.options)
    if cache is None or source.key is None or not fits(source) or not room(cache, _size(source.header)):
        return False
    source.cached = (source.cached or cached.Known(cache))._replace(fills=True)
    return True


def mark_all(lacking: Lacking) -> None:
    """Mark files that the cache lacks; the accelerator's backend says which of them the host decodes and puts in."""
    for number in lacking.numbers.tolist():
        _mark(lacking.sources[number])


def mark_affordable(lacking: Lacking) -> None:
    """Mark of files that the cache lacks those for which there is time now (``pace``)."""
    sources, numbers, regions = lacking
    if isinstance(sources, Files):
        heights, widths, _ = sources.sizes()
        fitting, whole = sources.plain() & decode.agrees("accel"), heights * widths
        fitting, whole = fitting[numbers], whole[numbers]
    else:
        fitting, whole = _of_each([sources[number] for number in numbers.tolist()])
    numbers, regions, whole = numbers[fitting], regions[fitting], whole[fitting]
    if not len(numbers):
        return
    first = sources[int(numbers[0])]
    cache = cached.of(first.selection.options)
    if cache is not None and room(cache, int(whole.max())):
        for chosen in pace.of(cache).choose(regions, whole, indexed=stream_index.knows(first.key)):
            _mark(sources[int(numbers[chosen])])


def _of_each(sources: Sequence[Source]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Which files may have planes, each once, and their pixels. Those that are no JPEG are marked."""
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
        source.cached = (source.cached or cached.Known(cache))._replace(fills=True)


def room(cache: Cache, pixels: int) -> bool:
    """Whether a cache takes more planes, of a file of so many pixels."""
    return cache.room(PLANES, pixels * 3 // 2)  # which photos hardly exceed


def _size(header: Header | Raw) -> int:
    return header.height * header.width


def decoded(source: Source, box: Box, channels: int, engine: str) -> Pixels | None:
    """The region of a file whose planes the cache takes now; None where it has to be decoded otherwise."""
    known, key, header = source.cached, source.key, source.header
    if (
        key is None
        or not (known.fills or known.planes)
        or not room(known.cache, _size(header))
        or not fits(source, engine)
    ):
        return None
    data, begun = source.data, thread_time()
    said, made = cached.packed(source), planes.encode(data, box, channels=channels)
    if said is None or made is None:
        return None
    if known.cache.put(key, said, PLANES, made.content, cached.tag() + made.meta, made.ends):
        counters.count(counters.PLANES)
        known.cache.worth.filling.add(1e6 * (thread_time() - begun), header.height * header.width)
    return made.pixels
