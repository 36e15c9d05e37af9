"""Stream indexes in a cache's folder: of files that are decoded, because the cache has nothing better of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.cache.cache import Cache
from accel.cache.entry import INDEX, Entry
from accel.codec import stream_index
from accel.codec.header import Header
from accel.codec.jpeg import index_fields
from accel.options import Selection
from accel.recipe import Source
from accel.runtime import cached, planes
from accel.system import counters
from accel.system.memory import Key

_HIGHEST = 16  # rows of pixels in a row of MCUs, at most


class Durable(NamedTuple):
    """The index of one file in a cache (``accel.codec.stream_index.Durable``); ``header``: what the cache says of it.

    Another one is written when a quarter more rows are known, so that the few bytes are not written in every epoch.
    """

    cache: Cache
    key: Key
    header: bytes

    def read(self, room: Callable[[int], Any]) -> bool:
        entry = self._entry()
        if entry is None:
            return False
        out = room(entry.size)
        if len(out) != entry.size or not self.cache.read(entry, 0, entry.parts, out):
            return False
        counters.count(counters.INDEX_HITS)
        return True

    def lacks(self, index: npt.NDArray[np.uint8]) -> bool:
        rows = _rows(index)
        if rows == 0 or not self.cache.room(INDEX, len(index)):
            return False
        entry = self._entry()
        return entry is None or 4 * rows >= 5 * int.from_bytes(entry.meta[cached.MARK :], "little")

    def put(self, index: bytes) -> None:
        rows = _rows(np.frombuffer(index, np.uint8))
        self.cache.put(self.key, self.header, INDEX, index, cached.tag() + rows.to_bytes(2, "little"))

    def _entry(self) -> Entry | None:
        file = self.cache.look(self.key)
        entry = None if file is None else file.entries.get(INDEX)
        return entry if entry is not None and entry.meta[: cached.MARK] == cached.tag() else None


def _rows(index: npt.NDArray[np.uint8]) -> int:
    """How many rows of MCUs an index knows."""
    return int(index.view(np.uint16)[index_fields.ROWS]) if len(index) > 2 * index_fields.POINTS else 0


def keep(source: Source, index: npt.NDArray[np.uint8]) -> None:
    """Keep the index of a file that a decoder of whole batches has made, where a cache lacks it."""
    durable = of(source)
    if durable is not None and durable.lacks(index):
        durable.put(index.tobytes())


def has_part(source: Source) -> bool:
    """Whether a cache's folder has a part in decoding a file: it has an index that the run does not know, or takes one.

    That is where there is no room for planes. Another one is taken where a quarter of its file is not known there.
    """
    cache, header = cached.of(source.selection.options), source.header
    if cache is None or source.key is None or planes.room(cache, header.height * header.width):
        return False
    takes, known = cache.room(INDEX, len(source.data) // index_fields.SHARE), stream_index.knows(source.key)
    if known and not takes:
        return False
    file = cache.look(source.key)
    entry = None if file is None else file.entries.get(INDEX)
    if entry is None:
        return takes
    rows = int.from_bytes(entry.meta[cached.MARK :], "little")
    return not known or 4 * _HIGHEST * rows < 3 * header.height


def may_have_part(selection: Selection, pixels: int) -> bool:
    """Whether it may have one in decoding some of files of at most so many pixels."""
    cache = cached.of(selection.options)
    return cache is not None and not planes.room(cache, pixels)


def of(source: Source) -> Durable | None:
    """Where the index of a file outlives the run; None: there is no cache, or nothing to be said of the file there."""
    cache, key = cached.of(source.selection.options), source.key
    if cache is None or key is None or not isinstance(source.header, Header) or source.header.progressive:
        return None
    header = cached.packed(source)
    return None if header is None else Durable(cache, key, header)
