"""What goes wrong with a cache: counted, said once, and done without. Nothing of it reaches who reads images."""

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
    """What a process has found wrong with a cache: ``broken``, so that it does without, or ``mute``, so that it writes
    nothing more."""

    def __init__(self, folder: Path, *, writable: bool) -> None:
        self._folder = folder
        self.broken = False
        self.mute = False
        if not writable:
            self.stop("the folder is read-only")

    def ask(self, table: Callable[..., Result], *given: object) -> Result | None:
        """What the table says; None where it cannot, now or ever."""
        try:
            return table(*given)
        except (sqlite3.Error, OSError, MemoryError, ValueError, OverflowError) as error:
            self._found(error, "the cache cannot be read: ", self._count)
        return None

    def change(self, table: Callable[..., Result], *given: object) -> Result | None:
        """``ask`` for a change of the table; where it fails for good, nothing more is written."""
        try:
            return table(*given)
        except (sqlite3.Error, OSError, MemoryError, ValueError, OverflowError) as error:
            self._found(error, "", self.stop)
        return None

    def mend(self, table: Table) -> None:
        """Mend what the table says of segments, if that is damaged, which is counted."""
        found = 0 if self.mute else self.change(table.mend)
        if found:
            counters.fallback(SEGMENT)

    def _found(self, error: Exception, said: str, otherwise: Callable[[str], None]) -> None:
        if is_damage(error):
            self.give_up(str(error))
        elif isinstance(error, FileNotFoundError):
            self.broken = True
            self._count(f"the cache is gone: {error}")
        elif not is_busy(error):
            otherwise(f"{said}{error}")

    def _count(self, reason: str) -> None:
        counters.fallback(f"{reason}: {self._folder}")

    def stop(self, reason: str) -> None:
        """Write nothing more, in this process."""
        if not self.mute:
            self.mute = True
            self._count(f"nothing more is written to the cache: {reason}")

    def give_up(self, reason: str) -> None:
        """Do without, in this process; whoever opens it next while nobody uses it begins anew."""
        if not self.broken:
            self.broken = True
            with suppress(OSError):
                (self._folder / DAMAGED).touch(mode=0o600)
            self._count(f"the cache is damaged, and not used any more: {reason}")

    def entry(self) -> None:
        """Count an entry that is not what it should be."""
        counters.fallback(ENTRY)

    def too_large(self) -> None:
        """Count what is larger than an entry may be."""
        counters.fallback(TOO_LARGE)
