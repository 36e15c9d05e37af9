"""Which files are put into a cache as they are decoded: so few that filling costs an epoch little, and pays for itself.

A file that is put in is decoded whole, packed and written, where a region alone would do: that much *longer* is its
price. It is paid from an account. Files that are decoded for the first time in a run pay in a very small part of what
that takes. After that what is saved is paid in: by hits, and by stream indexes, which the cache brings, too; less what
looking files up takes. First it pays back what the first time took longer than without a cache, of all else a part. So
two epochs together take about as long as without a cache, and all others less. Of a batch, those files come first of
which most is decoded anyway.

The account is in pixels decoded for the first time, which it takes no clock to count. How many of them anything else is
worth is measured by each process for itself (``accel.cache.worth``); so long as it has not been, it is assumed.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from accel.cache.cache import Cache
from accel.cache.worth import Rate, Worth
from accel.codec.engines import Box
from accel.codec.header import Header, Raw
from accel.system import fork

FIRST, LATER = 0.02, 0.7
"""The parts that are paid in: of what files take for the first time, and of what is saved later and owed no more."""

_BY_INDEX, _FILLING, _READING = 0.7, 1.5, 0.5  # times as long as decoding takes for the first time, as is assumed
_INDEXING = 0.1  # of decoding for the first time: what making the stream index takes
_LOOKING = 5000  # what looking a file up takes in each epoch, in pixels
_CHEAPEST = 0.1  # of decoding all of a file: what filling takes more at least
_EACH = 40_000  # what any file takes beside that, in pixels: it is decoded alone, and the table is written
_GOLDEN = 0.6180339887

Numbers = npt.NDArray[np.int64]


class Pace:
    """The account of a process with one cache.

    Threads share it without a lock: what one loses of another's numbers matters to nothing.
    """

    def __init__(self, worth: Worth) -> None:
        self._worth = worth
        self.begin()

    def begin(self) -> None:
        """Begin with an empty account: the measures are the process's own, or its parent's."""
        self.credit = self._owed = 0.0
        # processes that live too short to pay for a file make one up together: each has another part of one in advance
        self._advance: float | None = os.getpid() * _GOLDEN % 1

    def choose(self, regions: Numbers, whole: Numbers, *, indexed: bool) -> list[int]:
        """Which of a batch's files that the cache lacks are put in now.

        Args:
            regions: of each the ``pixels`` that are decoded anyway. whole: all that it has.
            indexed: whether they were decoded before in this run.
        """
        by_index, decoded = self._times(self._worth.by_index, _BY_INDEX), int(regions.sum())
        if indexed:
            self._saved(decoded, by_index, len(regions))
        else:
            ahead = FIRST * decoded
            self.credit += ahead
            self._owed += ahead + _INDEXING * decoded + _LOOKING * len(regions)
        if self._advance is None and self.credit < _EACH:
            return []
        decoding, filling = by_index if indexed else 1.0, self._times(self._worth.filling, _FILLING)
        prices = np.maximum(filling * whole - decoding * regions, _CHEAPEST * whole) + _EACH
        if self._advance is not None:
            self.credit += self._advance * float(prices.mean())
            self._advance = None
        if self._times(self._worth.hits, _READING) >= by_index:  # a hit saves nothing
            self.credit = 0.0
        chosen = set[int]()
        if self.credit >= prices.min():
            each = prices.tolist()
            for number in np.argsort(prices / whole, kind="stable").tolist():
                if self.credit >= each[number]:
                    self.credit -= each[number]
                    chosen.add(number)
        self.credit = min(self.credit, float(prices.sum()))  # more lapses
        return sorted(chosen)

    def _times(self, rate: Rate, assumed: float) -> float:
        """How many times as long as decoding for the first time something takes."""
        first = self._worth.first.value
        return rate.value / first if rate.value and first else assumed

    def found(self, pixels: int, files: int) -> None:
        """Note regions of so many files that were found."""
        self._saved(pixels, self._times(self._worth.hits, _READING), files)

    def _saved(self, pixels: int, took: float, files: int) -> None:
        """Pay in what was saved of files that were looked up, and took so many times as long as for the first time."""
        self._owed -= (1 - _INDEXING - took) * pixels - _LOOKING * files
        self.credit -= LATER * min(self._owed, 0.0)
        self._owed = max(self._owed, 0.0)


def pixels(header: Header | Raw, box: Box) -> int:
    """How many pixels of a file are decoded for a region, the first time: all rows down to its end."""
    return header.width * (box[0] + box[2])


def pixels_of_all(widths: Numbers, boxes: Numbers) -> int:
    """The ``pixels`` of many files of these widths: boxes, int64 [files, 4]."""
    return int((widths * (boxes[:, 0] + boxes[:, 2])).sum())


_paces: dict[int, Pace] = {}


def of(cache: Cache) -> Pace:
    """The pace of this process for a cache, which lives as long as the process."""
    found = _paces.get(id(cache))
    return found or _paces.setdefault(id(cache), Pace(cache.worth))


def _in_child() -> None:
    for each in _paces.values():
        each.begin()


fork.register(in_child=_in_child)
