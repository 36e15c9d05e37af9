"""When a file is put into a cache as it is decoded: so that filling costs an epoch little, and pays for itself.

A file that is put in is decoded whole, packed and written, which takes longer than its region alone. This *extra* time
is paid from a credit: a part of the time that decoding takes, and what files that are found save. Regions that are
large, as parts of their pictures, come first: of those files much is decoded anyway.

All of it is measured, in CPU time of the thread, by each process for itself: it may live for some batches only.
"""

from __future__ import annotations

from accel.cache.cache import Cache
from accel.codec.engines import Box
from accel.codec.header import Header, Raw
from accel.system import fork

SHARE = 0.2
"""What filling may add to the time of decoding."""

_MOST = 8  # files that may be paid for at once: what is not spent lapses
_WILD = 4  # times the mean: longer ones, of which something was compiled or waited for, count as so long
_LAST = 100  # measures of which the mean is, about


class _Mean:
    """The mean of the last values. The first one is not believed: memory is new then, and code may be compiled."""

    def __init__(self) -> None:
        self.count, self.value = -1, 0.0

    def add(self, value: float) -> float:
        """Add a value; what it counts as."""
        self.count += 1
        if self.count > 1:
            value = min(value, _WILD * self.value)
        if self.count > 0:
            self.value += (value - self.value) / min(self.count, _LAST)
        return value if self.count > 0 else self.value


class Pace:
    """What a process knows of its times, and its credit for one cache, in microseconds.

    Threads share it without a lock: what one loses of another's numbers matters to nothing.
    """

    def __init__(self) -> None:
        self._decoding, self._filling, self._part = (_Mean(), _Mean()), _Mean(), _Mean()
        self.credit = 0.0

    def is_large(self, header: Header | Raw, box: Box) -> bool:
        """Whether a region is a larger part of its picture than others are."""
        part = box[2] * box[3] / (header.height * header.width)
        self._part.add(part)
        return part >= self._part.value

    def _usual(self, large: bool) -> float:
        """What decoding such a region takes; 0: it is not known yet."""
        return self._decoding[large].value or self._decoding[not large].value

    def _extra(self) -> float:
        """What filling takes more; before it was measured, as long as decoding."""
        usual = self._usual(True)
        return usual if self._filling.count < 1 else max(self._filling.value - usual, 0.1 * usual)

    def allows(self, large: bool) -> bool:
        """Whether a file that is not in the cache, of which such a region is wanted, is to be put in now."""
        # half a file ahead, for half a file is lost, on average, when the process ends
        return self.credit > 0 and self.credit >= (0.5 if large else _MOST / 2) * self._extra()

    def decoded(self, large: bool, took: float) -> None:
        """Note that a file was decoded, and not put in."""
        self._earn(SHARE * self._decoding[large].add(took))

    def filled(self, large: bool, took: float) -> None:
        """Note that a file was put in."""
        extra = self._extra()
        took = self._filling.add(took)
        self.credit -= max(took - self._usual(large), 0.0) if self._filling.count > 0 else extra

    def read(self, large: bool, took: float) -> None:
        """Note that a file was found."""
        self._earn(max(self._usual(large) - took, 0.0))

    def _earn(self, amount: float) -> None:
        self.credit = min(self.credit + amount, _MOST * self._extra())


_paces: dict[int, Pace] = {}


def of(cache: Cache) -> Pace:
    """The pace of this process for a cache, which lives as long as the process."""
    found = _paces.get(id(cache))
    return found or _paces.setdefault(id(cache), Pace())


def _in_child() -> None:
    for each in _paces.values():
        each.credit = 0.0  # which is the parent's


fork.register(in_child=_in_child)
