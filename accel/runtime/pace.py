"""Which files are put into a cache as they are decoded: so few that filling costs an epoch little, and pays for itself.

A file that is put in is decoded whole, packed and written, where a region alone would do: that much *longer* is its
price. It is paid from an account. Files that are decoded for the first time in a run pay in a small part of what that
takes. After that half of what is saved is paid in: by hits, and by stream indexes, which the cache brings, too. So the
first epoch takes longer by that part, and all others less than they would without a cache. Of a batch, those files
come first of which most is decoded anyway.

The account is in pixels decoded for the first time, which it takes no clock to count. How many of them anything else is
worth is measured, in CPU time of the thread, by each process for itself; so long as it has not been, it is assumed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from accel.cache.cache import Cache
from accel.cache.worth import Rate
from accel.codec.engines import Box
from accel.codec.header import Header, Raw
from accel.system import fork

FIRST, LATER = 0.05, 0.5
"""The parts that are paid in: of what files take for the first time, and of what is saved later."""

_BY_INDEX, _FILLING, _READING = 0.7, 2.0, 0.4  # times as long as decoding takes for the first time, as is assumed
_CHEAPEST = 0.1  # of decoding all of a file: what filling takes more at least
_EACH = 10_000  # what any file takes beside that, in pixels: it is decoded alone, and the table is written
_ENOUGH = 4  # measures of decoding; behind them, one of a batch is taken
_GOLDEN = 0.6180339887


class Pace:
    """What a process knows of its times, and its account with one cache.

    Threads share it without a lock: what one loses of another's numbers matters to nothing.
    """

    def __init__(self) -> None:
        self._first, self._by_index, self._filling, self._reading = Rate(), Rate(), Rate(), Rate()
        self.begin()

    def begin(self) -> None:
        """Begin with an empty account: the measures are the process's own, or its parent's."""
        self.credit = 0.0
        self._indexed = False
        # processes that live too short to pay for a file make one up together: each has another part of one in advance
        self._advance: float | None = os.getpid() * _GOLDEN % 1

    def choose(self, files: Sequence[tuple[Header | Raw, Box]], *, indexed: bool) -> tuple[list[int], list[int]]:
        """Which of a batch's files that the cache lacks are put in now; and whose decoding is measured.

        ``indexed``: whether they were decoded before in this run.
        """
        self._indexed = indexed
        decoding = self._worth(self._by_index, _BY_INDEX) if indexed else 1.0
        filling = self._worth(self._filling, _FILLING)
        regions = [pixels(header, box) for header, box in files]
        whole = [header.width * header.height for header, _ in files]
        prices = [
            max(filling * size - decoding * region, _CHEAPEST * size) + _EACH
            for region, size in zip(regions, whole, strict=True)
        ]
        self.credit += sum(regions) * (LATER * max(1 - decoding, 0.0) if indexed else FIRST)
        if self._advance is not None:
            self.credit += self._advance * sum(prices) / len(prices)
            self._advance = None
        chosen = set[int]()
        for number in sorted(range(len(files)), key=lambda number: prices[number] / whole[number]):
            if self.credit >= prices[number]:
                self.credit -= prices[number]
                chosen.add(number)
        self.credit = min(self.credit, sum(prices))  # more lapses
        others = [number for number in range(len(files)) if number not in chosen]
        return sorted(chosen), others[: 1 if self._decoding.count >= _ENOUGH else _ENOUGH]

    @property
    def _decoding(self) -> Rate:
        return self._by_index if self._indexed else self._first

    def _worth(self, rate: Rate, assumed: float) -> float:
        """What a pixel takes by what it takes to decode one for the first time."""
        return rate.value / self._first.value if rate.value and self._first.value else assumed

    def decoded(self, pixels: int, took: float) -> None:
        """Note how long it took to decode a region."""
        self._decoding.add(took, pixels)

    def filled(self, pixels: int, took: float) -> None:
        """Note how long it took to put in a file of so many pixels."""
        self._filling.add(took, pixels)

    def read(self, pixels: int, took: float) -> None:
        """Note how long it took to read a region, of a file that was found."""
        self._reading.add(took, pixels)
        self.found(pixels)

    def found(self, pixels: int) -> None:
        """Note a region of a file that was found."""
        self.credit += LATER * pixels * max(1 - self._worth(self._reading, _READING), 0.0)


def pixels(header: Header | Raw, box: Box) -> int:
    """How many pixels of a file are decoded for a region, the first time: all rows down to its end."""
    return header.width * (box[0] + box[2])


_paces: dict[int, Pace] = {}


def of(cache: Cache) -> Pace:
    """The pace of this process for a cache, which lives as long as the process."""
    found = _paces.get(id(cache))
    return found or _paces.setdefault(id(cache), Pace())


def _in_child() -> None:
    for each in _paces.values():
        each.begin()


fork.register(in_child=_in_child)
