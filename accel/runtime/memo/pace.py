"""Choosing the files to put into a cache as they are decoded: so few that filling costs little, and pays for itself.

A file that is put in is decoded whole, packed and written, where decoding a region would do: the extra time is its
price, paid from an account, whose rules are in docs/cache.md. The account is in pixels decoded for the first time,
which can be counted without a clock. What other work costs in these pixels each process measures for itself
(``accel.cache.worth``); until then it is assumed.
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
"""The parts that are paid in: of the time of a first decode, and of later savings once the debt is paid."""

_BY_INDEX, _FILLING, _READING = 0.7, 1.5, 0.5  # assumed times, relative to a first decode
_INDEXING = 0.1  # the part of a first decode that making the stream index takes
_LOOKING = 5000  # the cost of looking a file up in each epoch, in pixels
_CHEAPEST = 0.1  # the least extra cost of filling, as a part of decoding the whole file
_EACH = 40_000  # the further cost of any file, in pixels: it is decoded alone, and the table is written
_GOLDEN = 0.6180339887

Numbers = npt.NDArray[np.int64]


class Pace:
    """The account of a process with one cache.

    Threads share it without a lock: an update that one loses of another's does no harm.
    """

    def __init__(self, worth: Worth) -> None:
        self._worth = worth
        self.begin()

    def begin(self) -> None:
        """Begin with an empty account; a forked child keeps its parent's measurements."""
        self.credit = self._owed = 0.0
        # each process gets another part of a file's price in advance, so that short-lived ones together pay for some
        self._advance: float | None = os.getpid() * _GOLDEN % 1

    def choose(self, regions: Numbers, whole: Numbers, *, indexed: bool) -> list[int]:
        """Choose the files to put in now, of a batch's files that the cache lacks; return their positions, ascending.

        Args:
            regions: the ``pixels`` of each that are decoded anyway. whole: all pixels of each.
            indexed: whether the files were decoded before in this run.
        """
        by_index, decoded = self._times(self._worth.by_index, _BY_INDEX), int(regions.sum())
        if indexed:
            self._add_savings(decoded, by_index, len(regions))
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
        self.credit = min(self.credit, float(prices.sum()))  # the rest lapses
        return sorted(chosen)

    def _times(self, rate: Rate, assumed: float) -> float:
        """The measured time of something relative to a first decode, or the assumed one."""
        first = self._worth.first.value
        return rate.value / first if rate.value and first else assumed

    def add_hits(self, pixels: int, files: int) -> None:
        """Pay in for ``files`` files found in the cache, whose regions have ``pixels`` pixels."""
        self._add_savings(pixels, self._times(self._worth.hits, _READING), files)

    def _add_savings(self, pixels: int, took: float, files: int) -> None:
        """Pay in the savings of files that were looked up; ``took``: their time, relative to a first decode."""
        self._owed -= (1 - _INDEXING - took) * pixels - _LOOKING * files
        self.credit -= LATER * min(self._owed, 0.0)
        self._owed = max(self._owed, 0.0)


def pixels(header: Header | Raw, box: Box) -> int:
    """The pixels of a file that a first decode of a region covers: all rows down to the region's end."""
    return header.width * (box[0] + box[2])


def pixels_of_all(widths: Numbers, boxes: Numbers) -> int:
    """The sum of ``pixels`` over many files. Boxes: int64 [files, 4]."""
    return int((widths * (boxes[:, 0] + boxes[:, 2])).sum())


_paces: dict[int, Pace] = {}


def of(cache: Cache) -> Pace:
    """This process's pace for a cache, which must live as long as the process."""
    found = _paces.get(id(cache))
    return found or _paces.setdefault(id(cache), Pace(cache.worth))


def _in_child() -> None:
    for each in _paces.values():
        each.begin()


fork.register(in_child=_in_child)
