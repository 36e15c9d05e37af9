"""Files of a batch that a cache has something of, looked up together: before they are read, or behind that."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from accel.cache.entry import packed_key
from accel.codec import opening
from accel.codec.store import Keys, key_of_row
from accel.options import Options, Selection
from accel.recipe import Source
from accel.runtime import cached
from accel.system.memory import Key, key_of

_MANY = 8  # a batch of which one in so many was found; reading a file takes several times as long as looking it up
_finding: dict[Options, bool] = {}


def finds(selection: Selection) -> bool:
    """Whether files are to be looked up before they are read: of the last batch some were found."""
    return _finding.get(selection.options, True)


def opened(paths: Sequence[Any], selection: Selection, read: Keys | None = None) -> dict[int, Source]:
    """``cached.opened`` of files that nobody has open: those of which there is something.

    ``read``: the keys of files that were read already, if they can be trusted.
    """
    cache, found = cached.of(selection.options), dict[int, Source]()
    if cache is None:
        return found
    names: list[bytes | None] = [None] * len(paths) if read is None else read.packed()
    others = [number for number, name in enumerate(names) if name is None]
    for number, name in zip(others, _names([paths[number] for number in others]), strict=True):
        names[number] = name
    there = [(number, name) for number, name in enumerate(names) if name is not None]
    for (number, name), file in zip(there, cache.look_all([name for _, name in there]), strict=True):
        if file is not None:
            is_open = read is not None and bool(read.trusted[number])
            source = cached.source_of(paths[number], key_of_row(name), cache, file, selection, is_open=is_open)
            if source is not None:
                found[number] = source
    _finding[selection.options] = _MANY * len(found) >= len(paths)
    return found


def _names(paths: Sequence[Any]) -> list[bytes | None]:
    """The keys of files by their paths, packed; None of one that is not to be trusted, or not there."""
    keys = opening.keys(paths)
    if keys is not None:
        return keys.packed()
    return [None if key is None else packed_key(key) for key in map(_key, paths)]


def _key(path: Any) -> Key | None:
    try:
        return key_of(os.stat(path))
    except (OSError, ValueError, TypeError):  # Pillow will say it
        return None
