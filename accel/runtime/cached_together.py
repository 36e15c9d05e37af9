"""Files of a batch that a cache has something of, looked up together: before they are read, or behind that."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from accel.cache.entry import File, packed_key
from accel.codec import opening
from accel.codec.store import Keys, key_of_row
from accel.options import Options, Selection
from accel.recipe import Source
from accel.runtime import cached
from accel.runtime.cached import Known
from accel.sources import COLOURED, Numbers, Sources
from accel.system.memory import Key, key_of

_MANY = 8  # a batch of which one in so many was found; reading a file takes several times as long as looking it up
_finding: dict[Options, bool] = {}


class _Looked(NamedTuple):
    """A file of which a cache has something: its number, its path and key, and what there is, as it is believed."""

    number: int
    path: Any
    key: bytes
    file: File
    known: Known


class CachedFiles(Sources):
    """Files of a batch of which a cache has something. A source is made of one when somebody looks at it."""

    __slots__ = ("_paths", "found")

    def __init__(self, found: Sequence[_Looked], selection: Selection) -> None:
        super().__init__(selection)
        self.found = found
        self._paths = [_whole(each.path) for each in found]

    def __len__(self) -> int:
        return len(self.found)

    def _one(self, place: int) -> Source:
        _, path, key, _, known = self.found[place]
        return cached.source(cached.name_of(path), self._paths[place], key_of_row(key), known, self.selection)

    def by_numbers(self) -> dict[int, Source]:
        """The sources, by the numbers of the files in the batch."""
        return {each.number: self[place] for place, each in enumerate(self.found)}

    def table(self) -> Numbers:
        said = np.frombuffer(b"".join([each.known.said for each in self.found]), cached.SAID)
        components = np.where(said["mode"] == cached.RGB, COLOURED, 1)
        return np.stack([components, said["height"], said["width"]], 1).astype(np.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (list(self),)


def finds(selection: Selection) -> bool:
    """Whether files are to be looked up before they are read: of the last batch some were found."""
    return _finding.get(selection.options, True)


def opened(paths: Sequence[Any], selection: Selection, read: Keys | None = None) -> CachedFiles:
    """``cached.opened`` of files that nobody has open: those of which there is something.

    ``read``: the keys of files that were read already, if they can be trusted.
    """
    cache = cached.of(selection.options)
    if cache is None:
        return CachedFiles((), selection)
    names: list[bytes | None] = [None] * len(paths) if read is None else read.packed()
    others = [number for number, name in enumerate(names) if name is None]
    for number, name in zip(others, _names([paths[number] for number in others]), strict=True):
        names[number] = name
    there = [(number, name) for number, name in enumerate(names) if name is not None]
    found = [
        _Looked(number, paths[number], name, file, known)
        for (number, name), file in zip(there, cache.look_all([name for _, name in there]), strict=True)
        if file is not None and (known := cached.believed(cache, file)) is not None
    ]
    _finding[selection.options] = _MANY * len(found) >= len(paths)
    return CachedFiles(found, selection)


def _whole(path: Any) -> Any:
    return path if type(path) is str and path.startswith("/") else cached.whole(path)


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
