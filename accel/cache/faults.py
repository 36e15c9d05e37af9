"""Failures of a cache: each is counted, logged once, and worked around, so that none reaches a reader of images."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from accel.cache.folder import DAMAGED
from accel.cache.table import Table, is_busy, is_damage, sqlite3
from accel.system import counters

Result = TypeVar("Result")

ENTRY = "an entry of the cache was damaged"
SEGMENT = "what the cache's table says of a segment was damaged, and mended"
TOO_LARGE = "something is too large to be an entry of the cache"


class Faults:
    """The state of a cache in this process: if ``broken`` it is not used any more, if ``mute`` not written to."""

    def __init__(self, folder: Path, *, writable: bool) -> None:
        self._folder = folder
        self.broken = False
        self.mute = False
        if not writable:
            self.stop("the folder is read-only")

    def ask(self, table: Callable[..., Result], *args: object) -> Result | None:
        """Call a method of the table that reads; None if it fails, for now or for good."""
        try:
            return table(*args)
        except (sqlite3.Error, OSError, MemoryError, ValueError, OverflowError) as error:
            self._found(error, "the cache cannot be read: ", self._count)
        return None

    def change(self, table: Callable[..., Result], *args: object) -> Result | None:
        """Call a method of the table that writes; None if it fails. If it fails for good, nothing more is written."""
        try:
            return table(*args)
        except (sqlite3.Error, OSError, MemoryError, ValueError, OverflowError) as error:
            self._found(error, "", self.stop)
        return None

    def mend(self, table: Table) -> None:
        """Mend the damaged rows of segments, if any, and count that."""
        found = 0 if self.mute else self.change(table.mend)
        if found:
            counters.fallback(SEGMENT)

    def _found(self, error: Exception, prefix: str, otherwise: Callable[[str], None]) -> None:
        if is_damage(error):
            self.give_up(str(error))
        elif isinstance(error, FileNotFoundError):
            self.broken = True
            self._count(f"the cache is gone: {error}")
        elif not is_busy(error):
            otherwise(f"{prefix}{error}")

    def _count(self, reason: str) -> None:
        counters.fallback(f"{reason}: {self._folder}")

    def stop(self, reason: str) -> None:
        """Write nothing more in this process."""
        if not self.mute:
            self.mute = True
            self._count(f"nothing more is written to the cache: {reason}")

    def give_up(self, reason: str) -> None:
        """Stop using the cache in this process; the next to open it while nobody uses it begins it anew."""
        if not self.broken:
            self.broken = True
            with suppress(OSError):
                (self._folder / DAMAGED).touch(mode=0o600)
            self._count(f"the cache is damaged, and not used any more: {reason}")
