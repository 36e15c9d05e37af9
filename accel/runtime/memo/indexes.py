"""Stream indexes in a cache's folder, for files that must be decoded as the cache has nothing better of them."""

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
from accel.recipes.options import Selection
from accel.recipes.recipe import Source
from accel.runtime.memo import cached, planes
from accel.system import counters
from accel.system.memory import Key

_HIGHEST = 16  # the most rows of pixels in a row of MCUs
_MARK = cached.MARK + 2  # bytes of ``_tag()``


class Durable(NamedTuple):
    """The index of one file in a cache (``accel.codec.stream_index.Durable``); ``header``: see ``cached.packed``.

    It is rewritten only when a quarter more rows are known, so that it is not written in every epoch.
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
        return entry is None or 4 * rows >= 5 * _known(entry)

    def put(self, index: bytes) -> None:
        rows = _rows(np.frombuffer(index, np.uint8))
        self.cache.put(self.key, self.header, INDEX, index, _tag() + rows.to_bytes(2, "little"))

    def _entry(self) -> Entry | None:
        return _look(self.cache, self.key)


def _tag() -> bytes:
    """What an entry's meta begins with: ``cached.tag()``, and the format of indexes; then it has the known rows."""
    return cached.tag() + index_fields.MAGIC.to_bytes(2, "little")


def _look(cache: Cache, key: Key) -> Entry | None:
    """A cache's index of a file; None if there is none of this version, so that another version's is replaced."""
    file = cache.look(key)
    entry = None if file is None else file.entries.get(INDEX)
    return entry if entry is not None and entry.meta[:_MARK] == _tag() else None


def _known(entry: Entry) -> int:
    """The number of rows of MCUs that a cache's index covers."""
    return int.from_bytes(entry.meta[_MARK:], "little")


def _rows(index: npt.NDArray[np.uint8]) -> int:
    """The number of rows of MCUs that an index covers."""
    return int(index.view(np.uint16)[index_fields.ROWS]) if len(index) > 2 * index_fields.POINTS else 0


def keep(source: Source, index: npt.NDArray[np.uint8]) -> None:
    """Put the index of a file, made by a decoder of whole batches, into the cache if that lacks it."""
    durable = of(source)
    if durable is not None and durable.lacks(index):
        durable.put(index.tobytes())


def has_part(source: Source) -> bool:
    """Whether decoding a file involves the cache's folder: it has an index that this run lacks, or takes one.

    This is so only if there is no room for planes. A new index is taken if the old one lacks a quarter of the file.
    """
    cache, header = cached.of(source.selection.options), source.header
    if cache is None or source.key is None or planes.room(cache, header.height * header.width):
        return False
    takes, known = cache.room(INDEX, len(source.data) // index_fields.SHARE), stream_index.knows(source.key)
    if known and not takes:
        return False
    entry = _look(cache, source.key)
    if entry is None:
        return takes
    return not known or 4 * _HIGHEST * _known(entry) < 3 * header.height


def may_have_part(selection: Selection, pixels: int) -> bool:
    """Whether ``has_part`` may be true for some file of at most ``pixels`` pixels."""
    cache = cached.of(selection.options)
    return cache is not None and not planes.room(cache, pixels)


def of(source: Source) -> Durable | None:
    """The index of a file in the cache's folder; None if there is no cache, or the file's index cannot be kept."""
    cache, key = cached.of(source.selection.options), source.key
    if cache is None or key is None or not isinstance(source.header, Header) or source.header.progressive:
        return None
    header = cached.packed(source)
    return None if header is None else Durable(cache, key, header)
