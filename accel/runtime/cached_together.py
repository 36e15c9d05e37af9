"""Files of a batch that a cache has something of, looked up together: before they are read, or behind that."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accel.cache.entry import File, packed_key
from accel.codec import opening
from accel.codec.store import Keys, key_of_row
from accel.options import Options, Selection
from accel.recipe import Source
from accel.runtime import cached
from accel.runtime.cached import Known
from accel.sources import Sizes, Sources
from accel.system.memory import Key, key_of

_MANY = 8  # a batch of which one in so many was found; reading a file takes several times as long as looking it up
_finding: dict[Options, bool] = {}


class CachedFiles(Sources):
    """Files of all of which a cache has something. A source is made of one when somebody looks at it.

    Attributes:
        found: what the cache has of each. known: the same, as it is believed.
    """

    __slots__ = ("_keys", "_names", "_paths", "found", "known")

    def __init__(
        self,
        names: Sequence[str],
        keys: Sequence[bytes],
        found: Sequence[File],
        known: Sequence[Known],
        selection: Selection,
    ) -> None:
        super().__init__(selection)
        self._names, self._keys, self.found, self.known = names, keys, found, known
        self._paths = [name if name.startswith("/") else cached.whole(name) for name in names]

    def __len__(self) -> int:
        return len(self._names)

    def _one(self, place: int) -> Source:
        key, known = key_of_row(self._keys[place]), self.known[place]
        return cached.source(self._names[place], self._paths[place], key, known, self.selection)

    def sizes(self) -> Sizes:
        said = np.frombuffer(b"".join([known.said for known in self.known]), cached.SAID)
        return said["height"].astype(np.int64), said["width"].astype(np.int64), said["mode"] == cached.RGB

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (list(self),)


def finds(selection: Selection) -> bool:
    """Whether files are to be looked up before they are read: of the last batch some were found."""
    return _finding.get(selection.options, True)


def opened(paths: Sequence[Any], selection: Selection, read: Keys | None = None) -> CachedFiles | Mapping[int, Source]:
    """``cached.opened`` of files that nobody has open: those of which there is something, by their numbers.

    ``read``: the keys of files that were read already, if they can be trusted.
    """
    cache = cached.of(selection.options)
    if cache is None:
        return {}
    names: list[bytes | None] = [None] * len(paths) if read is None else read.packed()
    others = [number for number, name in enumerate(names) if name is None]
    for number, name in zip(others, _names([paths[number] for number in others]), strict=True):
        names[number] = name
    there = [(number, name) for number, name in enumerate(names) if name is not None]
    files = cache.look_all([name for _, name in there])
    known = [None if file is None else cached.believed(cache, file) for file in files]
    found = [
        (number, name, file, each)
        for (number, name), file, each in zip(there, files, known, strict=True)
        if file is not None and each is not None
    ]
    _finding[selection.options] = _MANY * len(found) >= len(paths)
    if read is None and len(found) == len(paths) and set(map(type, paths)) == {str}:
        _, rows, own, believed = zip(*found, strict=True)
        return CachedFiles(paths, rows, own, believed, selection)
    return {
        number: cached.source(cached.name_of(path), cached.whole(path), key_of_row(name), each, selection)
        for number, name, _, each in found
        for path in (paths[number],)
    }


def _names(paths: Sequence[Any]) -> list[bytes | None]:
    """The keys of files that may be read, by their paths, packed; None of one that is not to be trusted, or there."""
    keys = opening.keys(paths)
    if keys is not None:
        return keys.packed()
    return [None if key is None else packed_key(key) for key in map(_key, paths)]


def _key(path: Any) -> Key | None:
    try:
        return key_of(os.stat(path)) if os.access(path, os.R_OK) else None
    except (OSError, ValueError, TypeError):  # Pillow will say it
        return None
