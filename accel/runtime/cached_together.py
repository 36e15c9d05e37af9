"""Files of a batch that a cache has entries of, looked up together, before or after they are read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from accel.cache.entry import File, packed_key
from accel.codec.store import Keys, key_of_row
from accel.files import reader
from accel.options import Options, Selection
from accel.recipe import Source
from accel.runtime import cached
from accel.runtime.cached import Known
from accel.sources import COLOURED, Numbers, Sources
from accel.system.memory import Key, key_of

_MANY = 8  # look up before reading if one file in so many was found; reading takes several times as long
_finding: dict[Options, bool] = {}


class _Looked(NamedTuple):
    """A file that a cache has entries of: its number in the batch, path, key, all its entries, and the usable ones."""

    number: int
    path: Any
    key: bytes
    file: File
    known: Known


class CachedFiles(Sources):
    """Files of a batch that a cache has entries of. The source of a file is made when it is asked for."""

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
    """Whether to look files up before reading them, as enough of the last batch were found."""
    return _finding.get(selection.options, True)


def opened(paths: Sequence[Any], selection: Selection, read: Keys | None = None) -> CachedFiles:
    """``cached.opened`` for many files, none of them open: those that the cache has entries of.

    ``read``: the keys of the files, if they were read already; keys that cannot be trusted are looked up.
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
    """The packed keys of files; None for one that is not there, not readable, or whose key cannot be trusted."""
    keys = reader.keys(paths)
    if keys is not None:
        return keys.packed()
    return [None if key is None else packed_key(key) for key in map(_key, paths)]


def _key(path: Any) -> Key | None:
    try:
        return key_of(os.stat(path)) if os.access(path, os.R_OK) else None
    except (OSError, ValueError, TypeError):  # Pillow will raise it
        return None
