"""What a byte of a cache saves, by shelf: measured by each process, and told to all in the cache's table.

A *shelf* is what is weighed together: a kind of entries, or of results those of one pipeline.
"""

from __future__ import annotations

from accel.cache.entry import INDEX, KINDS, PIXELS, PLANES, RESULT

ASSUMED = {INDEX: 64_000, RESULT: 4000, PIXELS: 4000, PLANES: 1500}
"""Picoseconds a byte, by kind, until it has been measured: of photos. That of indexes is not measured."""

DOUBLE = 2
"""Times as much as what is taken back for it a byte must save."""

_READING = 0.0003  # microseconds a byte, until it has been measured
_PIPELINES = 64  # that are told apart
_WILD = 4  # times the mean: longer ones, of which something was compiled or waited for, count as so long
_LAST = 100  # measures of which the mean is, about


def shelf_of(kind: int, pipeline: int = 0) -> int:
    """The shelf of a kind; ``pipeline``: any number that tells it from others."""
    return kind + KINDS * (pipeline % _PIPELINES)


def assumed(shelf: int) -> int:
    """Picoseconds that a byte of a shelf saves, where nobody has measured it."""
    return ASSUMED.get(shelf % KINDS, 0)


class Rate:
    """The time that one of many takes: a byte, or a pixel. The first measure is not believed: memory is new then, and
    code may be compiled. What took time and was nothing is no measure: a thread that came too late for any image."""

    def __init__(self) -> None:
        self.count, self._time, self._amount = -1, 0.0, 0.0

    @property
    def value(self) -> float:
        """0: it is not known yet."""
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
    """What this process has measured. Threads share it without a lock: one may lose another's measure.

    Attributes:
        first, by_index, hits: the microseconds that a pixel takes with all steps, of images that are decoded for the
            first time, by their stream indexes, and from a cache's planes.
        filling: those that it takes to put in a pixel's part of planes.
    """

    def __init__(self) -> None:
        self._saved: dict[int, Rate] = {}
        self._reading = Rate()
        self.first, self.by_index, self.hits, self.filling = Rate(), Rate(), Rate(), Rate()

    @property
    def asks(self) -> bool:
        """Whether it is to be measured how long reading takes: that is enough a few times."""
        return self._reading.count < _LAST

    def read(self, took: float, size: int) -> None:
        """Note the microseconds that reading and checking so many bytes took."""
        self._reading.add(took, size)

    def made(self, shelf: int, took: float, size: int) -> None:
        """Note the microseconds that it took to make so many bytes, which are as many less when they are read."""
        self.saved(shelf, took - (self._reading.value or _READING) * size, size)

    def found(self, shelf: int, took: float, pixels: int, size: int) -> None:
        """Note the microseconds that images of so many pixels take of which so many bytes are used, with all steps."""
        self.hits.add(took, pixels)
        if self.by_index.value and self.hits.value:
            self.saved(shelf, (self.by_index.value - self.hits.value) * pixels, size)

    def saved(self, shelf: int, time: float, size: int) -> None:
        """Note the microseconds that so many bytes save each time that they are found."""
        self._saved.setdefault(shelf, Rate()).add(max(time, 0.0), size)

    def of(self, shelf: int) -> int | None:
        """Picoseconds that a byte saves; None: not measured."""
        rate = self._saved.get(shelf)
        return None if rate is None or rate.count <= 0 else round(1e6 * rate.value)
