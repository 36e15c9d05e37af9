"""The time that a byte of a cache saves, by shelf: measured by each process, and shared in the cache's table.

A *shelf* is a set of entries that is weighed as one: a kind of entries, or the results of one pipeline.
"""

from __future__ import annotations

from accel.cache.entry import INDEX, KINDS, PIXELS, PLANES, RESULT

ASSUMED = {INDEX: 64_000, RESULT: 4000, PIXELS: 4000, PLANES: 1500}
"""Picoseconds that a byte of each kind saves until that is measured: for photos. That of indexes never is."""

DOUBLE = 2
"""The factor by which a byte must save more than the bytes that are taken back for it."""

_READING = 0.0003  # microseconds to read and check a byte
_PIPELINES = 64  # shelves of results
_WILD = 4  # measurements are capped at so many times the mean: in longer ones something was compiled or waited for
_LAST = 100  # the mean is over about so many measurements


def shelf_of(kind: int, pipeline: int = 0) -> int:
    """The shelf of a kind; ``pipeline``: any number that identifies the pipeline."""
    return kind + KINDS * (pipeline % _PIPELINES)


def assumed(shelf: int) -> int:
    """Picoseconds that a byte of a shelf is assumed to save, where nobody has measured it."""
    return ASSUMED.get(shelf % KINDS, 0)


class Rate:
    """The mean time for a unit: a byte or a pixel. The first measurement is ignored, as memory is new then and code may
    be compiled; so is one of no units, such as by a thread that came too late for any image."""

    def __init__(self) -> None:
        self.count, self._time, self._amount = -1, 0.0, 0.0

    @property
    def value(self) -> float:
        """The mean time for one unit; 0 if it is not known yet."""
        amount = self._amount  # another thread may have counted the first, and not added it yet
        return self._time / amount if amount else 0.0

    def add(self, time: float, amount: int) -> None:
        if not amount:
            return
        self.count += 1
        if usual := self.value:
            time = min(time, _WILD * usual * amount)
        if self.count > 0:
            keep = 1 - 1 / _LAST if self.count > _LAST else 1.0
            self._time, self._amount = keep * self._time + time, keep * self._amount + amount


class Worth:
    """This process's measurements. Threads share them without a lock, so one may overwrite another's.

    Attributes:
        first, by_index, hits: microseconds a pixel, for all steps, of images that are decoded for the first time, by
            their stream indexes, and from a cache's planes.
        filling: microseconds a pixel to put planes into a cache.
    """

    def __init__(self) -> None:
        self._saved: dict[int, Rate] = {}
        self.first, self.by_index, self.hits, self.filling = Rate(), Rate(), Rate(), Rate()

    def add_result(self, shelf: int, took: float, size: int) -> None:
        """Record the microseconds that making ``size`` bytes took, less those that reading them takes, as saved."""
        self.add_saving(shelf, took - _READING * size, size)

    def add_hits(self, shelf: int, took: float, pixels: int, size: int) -> None:
        """Record the microseconds that images of ``pixels`` took with all steps, using ``size`` bytes of the cache."""
        self.hits.add(took, pixels)
        if self.by_index.value and self.hits.value:
            self.add_saving(shelf, (self.by_index.value - self.hits.value) * pixels, size)

    def add_saving(self, shelf: int, time: float, size: int) -> None:
        """Record the microseconds that ``size`` bytes save each time they are found."""
        self._saved.setdefault(shelf, Rate()).add(max(time, 0.0), size)

    def of(self, shelf: int) -> int | None:
        """Picoseconds that a byte of a shelf saves; None if it was not measured."""
        rate = self._saved.get(shelf, Rate())
        return None if rate.count <= 0 else round(1e6 * rate.value)
