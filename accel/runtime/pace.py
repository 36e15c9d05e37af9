"""When a file is put into a cache as it is decoded: so that filling costs an epoch little, and pays for itself.

A file that is put in is decoded whole, packed and written, which takes longer than its region alone. For this *extra*
time there are two accounts. The *advance* is a part of the time that decoding takes, so that a first epoch has one. The
*balance* is what hits have saved less all that filling took: it is one for all processes and runs, lies in the cache,
and what it has, once advances are paid back, is spent. Files of which much is decoded anyway come first.

All times are CPU time of the thread. What would have been is reckoned, in proportion to what this process measures.
"""

from __future__ import annotations

from typing import NamedTuple

from accel.cache.cache import Cache
from accel.codec.engines import Box

SHARE, KNOWN = 0.1, 0.04
"""What filling may add to the decoding of files that are new; and of those of which an index is known already, so that
a cache is begun with in a later epoch as well."""

_AHEAD = 8  # times the usual extra time that an account must have, more for a file whose own is long: they come last
_LEAST = 0.5  # of that, for a file whose own is short
_MOST = 32  # and at most has: what is not spent lapses
_ENOUGH = 4  # decodes that were measured before any estimate is believed
_WINDOW = 2e5  # microseconds of which the mean is the measure


class Work(NamedTuple):
    """What it takes to have a region: microseconds on one core of a machine with AVX-512, fitted to random crops of
    photos, from which they are 6 to 8% away on average."""

    known: bool
    decoding: float
    by_index: float
    filling: float
    reading: float


def work(size: int, height: int, width: int, box: Box, known: bool) -> Work:
    """What a region of a file takes, given its bytes and its size; ``known``: by an index."""
    top, _, rows, columns = box
    area, whole = rows * columns, height * width
    by_index = 37 + 0.0042 * size * rows * (0.8 * columns + 0.2 * width) / whole + 0.0009 * area
    decoding = by_index
    if not known:
        decoding = 37 + size * (0.0033 * (top + rows) / height + 0.0007 * area / whole) + 0.0009 * area
    filling = 100 + 0.005 * size + 0.0007 * whole + 0.0005 * area
    return Work(known, decoding, by_index, filling, 30 + 0.0007 * area)


class _Scale:
    """Measured times by reckoned ones, of the last of them. The first one is not believed: memory is new then.

    ``doubt``: microseconds for which the ratio is taken from elsewhere as well.
    """

    def __init__(self, doubt: float = 0.0) -> None:
        self.count = -1
        self._measured = self._reckoned = 0.0
        self._doubt = doubt

    def add(self, measured: float, reckoned: float) -> None:
        self.count += 1
        if self.count > 0:
            if self._reckoned > _WINDOW:
                self._measured, self._reckoned = self._measured / 2, self._reckoned / 2
            self._measured += measured
            self._reckoned += reckoned

    def ratio(self, otherwise: float = 1.0) -> float:
        """Measured time by reckoned; ``otherwise``: before there are any."""
        if self.count < 1:
            return otherwise
        return (self._measured + otherwise * self._doubt) / (self._reckoned + self._doubt)


class Pace:
    """What a process knows of its times, and the accounts for one cache, in microseconds.

    Threads share it without a lock: what one loses of another's numbers matters to nothing.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._decoding, self._filling, self._reading = _Scale(), _Scale(1e4), _Scale(1e3)
        self._usual, self._part = 0.0, 1.0  # the extra time of a file, and what decoding a region takes of filling
        self._advance = 0.0

    def may(self) -> bool:
        """Whether any file can be paid for now."""
        return max(self._advance, self._cache.balance()) >= _AHEAD * _LEAST * self._usual > 0

    def allows(self, work: Work) -> bool:
        """Whether a file that is not in the cache is to be put in now."""
        scale = self._decoding.ratio()
        part = scale * work.decoding / (self._filling.ratio(scale) * work.filling)
        wanted = _AHEAD * max((self._part / part) ** 2, _LEAST) * self._usual
        return self._decoding.count >= _ENOUGH and max(self._advance, self._cache.balance()) >= wanted

    def decoded(self, work: Work, took: float) -> None:
        """Note that a file was decoded, and not put in."""
        self._decoding.add(took, work.decoding)
        filling = self._filling.ratio(self._decoding.ratio()) * work.filling
        share = 1 / min(max(self._decoding.count, 1), 100)
        self._usual += (max(filling - took, 0.1 * took) - self._usual) * share
        self._part += (took / filling - self._part) * share
        new = (KNOWN if work.known else SHARE) * took
        self._advance = min(self._advance + new, _MOST * self._usual)

    def filled(self, work: Work, took: float) -> None:
        """Note that a file was put in."""
        self._filling.add(took, work.filling)
        decoding = self._decoding.ratio() * work.decoding
        if self._cache.balance() <= 0:
            self._advance += (KNOWN if work.known else SHARE) * decoding - (took - decoding)
        self._cache.earn(decoding - took, 0.0)

    def read(self, work: Work, took: float, times: int) -> None:
        """Note that a file was found, as were others that were not measured: so many ``times`` in all."""
        self._reading.add(took, work.reading)
        scale = self._decoding.ratio(self._reading.ratio())
        self._cache.earn(times * (scale * work.by_index - took), _MOST * scale * work.filling)


_paces: dict[int, Pace] = {}


def of(cache: Cache) -> Pace:
    """The pace of this process for a cache, which lives as long as the process."""
    found = _paces.get(id(cache))
    return found or _paces.setdefault(id(cache), Pace(cache))
