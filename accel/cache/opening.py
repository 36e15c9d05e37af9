"""Opening a folder's cache: made if there is none, begun anew if it is damaged, refused if it cannot be used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from accel.cache import folder as folders
from accel.cache.folder import Unusable
from accel.cache.segments import Segments
from accel.cache.table import Table, is_damage, sqlite3
from accel.system import log


class Opened(NamedTuple):
    """An opened cache. ``in_use``: a descriptor whose lock tells others that it is used; None if it is read-only."""

    table: Table
    segments: Segments
    writable: bool
    in_use: int | None


def opened(folder: Path, version: str) -> Opened:
    """Open the cache in a folder, or make one.

    Raises:
        Unusable: the folder cannot be a cache, or has one of another version.
    """
    writable = folders.prepared(folder)
    table = Table(folder / folders.TABLE, writable=writable)
    try:
        segments = Segments(folder / folders.SEGMENTS)
        if not writable:
            _check(table.about("version"), version, folder)
            return Opened(table, segments, False, None)
        with folders.opening(folder):
            in_use = _opened(folder, table, version)
            table.tell_segments(segments.remove_others)
            table.hurry()
        return Opened(table, segments, True, in_use)
    except (sqlite3.Error, OSError, ValueError) as error:
        table.close()
        raise Unusable(f"{error}: {folder}") from error
    except Unusable:
        table.close()
        raise


def _opened(folder: Path, table: Table, version: str) -> int:
    """Make or check the tables; return a descriptor whose lock tells others that they are in use."""
    alone = folders.locked(folder / folders.IN_USE, exclusive=True)
    try:
        damage = _damage(folder, table, version, alone=alone is not None)
        if damage is not None and alone is None:
            raise Unusable(f"it is damaged ({damage}), and others use it still: {folder}")
        if damage is not None:
            table.close()
            folders.empty(folder)
            table.make({"version": version})
            log.note(log.WARNING, "the cache begins anew (%s): %s", damage, folder)
    finally:
        if alone is not None:
            os.close(alone)
    in_use = folders.locked(folder / folders.IN_USE, exclusive=False, patience=1.0)
    if in_use is None:
        raise Unusable(f"it is being cleared: {folder}")
    return in_use


def _damage(folder: Path, table: Table, version: str, *, alone: bool) -> Any:
    """Check the table, or make one: the damage found, None if there is none. ``alone``: no other process uses it.

    The user's folder in memory, which nobody has named, may as well have been another version's.
    """
    if (folder / folders.DAMAGED).exists():
        return "an earlier run found it damaged"
    try:
        found = table.about("version")
        if found is None:
            table.make({"version": version})
        elif found != version and alone and folder == folders.in_memory():
            return f"it was of version {found!r}, not {version!r}"
        else:
            _check(found, version, folder)
        if alone:
            table.reopen()
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
        return error
    return None


def _check(found: str | None, version: str, folder: Path) -> None:
    if found != version:
        said = f"it is of version {found!r}, not {version!r}, and left as it is"
        raise Unusable(f"{said} (`python -m accel cache clear` empties it): {folder}")
