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
from accel.codec.decode import choose
from accel.codec.engines import Box, Pixels
from accel.codec.header import Header, Raw
from accel.codec.jpeg import planes
from accel.codec.jpeg.planes_fields import META_SIZE
from accel.recipe import Source
from accel.runtime import cached, pace
from accel.system import counters
from accel.system.memory import Scratch

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


def used(count: int) -> None:
    """Note that so many files' planes were used."""
    counters.count(counters.PLANE_HITS, count)


def may_fill(source: Source) -> bool:
    """Whether a file's planes may be put in with this decode."""
    known = source.cached
    if known is None or known.planes is not None or not known.fills:
        return False
    return source.key is not None and fits(source) and _room(known.cache, source.header)


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
        own = pace.of(known.cache)
        own.read(own.is_large(source.header, box), 1e6 * (thread_time() - begun))
    return pixels


def fits(source: Source, engine: str = "auto") -> bool:
    """Whether a file may have planes."""
    header = source.header
    return isinstance(header, Header) and choose(header, engine) == "accel" and planes.fits(header)


def to_fill(source: Source) -> bool:
    """Have a file's planes be put in when the host decodes it; False: there is no cache, or no room for them."""
    cache = cached.of(source.selection.options)
    if cache is None or source.key is None or not fits(source) or not _room(cache, source.header):
        return False
    source.cached = (source.cached or cached.Known(cache))._replace(fills=True, now=True)
    return True


def _room(cache: Cache, header: Header | Raw) -> bool:
    return cache.room(PLANES, header.height * header.width * 3 // 2)  # which photos hardly exceed


def decoded(
    source: Source, box: Box, channels: int, engine: str
) -> tuple[Pixels | None, Callable[[float], None] | None]:
    """The region of a file whose planes the cache takes now; None where it has to be decoded otherwise.

    And if they are to be taken later, what wants to know the microseconds that decoding it took.
    """
    known, key, header = source.cached, source.key, source.header
    if key is None or not (known.fills or known.planes) or not _room(known.cache, header):
        return None, None
    data, own = source.data, pace.of(known.cache)
    large = own.is_large(header, box)
    if not (known.now or own.allows(large)) or not fits(source, engine):
        return None, partial(own.decoded, large)
    begun = thread_time()
    said, made = cached.packed(source), planes.encode(data, box, channels=channels)
    if said is None or made is None:
        return None, None
    if known.cache.put(key, said, PLANES, made.content, cached.tag() + made.meta, made.ends):
        counters.count(counters.PLANES)
        if not known.now:
            own.filled(large, 1e6 * (thread_time() - begun))
    return made.pixels, None
