"""One-dimensional index maps: the effect of cropping, flipping, padding and nearest resizing on one axis.

Each of these acts on rows and columns separately, so any sequence of them is one map for the rows and one for the
columns. For every output position a map has the input position that it shows, or, negative, a fill colour: code
``-1 - i`` is colour ``i`` of the stage. Later pads get more negative codes, so that the smaller of the row's and the
column's code is the colour of the later pad, as if the pads ran one by one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int32]
PadMode = Literal["constant", "edge", "reflect", "symmetric"]


class Index(NamedTuple):
    """A map from ``length`` output positions to input positions.

    Affine (position p shows ``start + step * p``, step +1 or -1) unless ``table`` (int32[length]) lists the input
    positions.
    """

    start: int
    step: int
    length: int
    table: npt.NDArray[np.int32] | None = None

    @staticmethod
    def identity(length: int) -> Index:
        return Index(0, 1, length)

    @staticmethod
    def listed(table: npt.ArrayLike) -> Index:
        entries = np.ascontiguousarray(table, dtype=np.int32)
        return Index(0, 1, len(entries), entries)

    def is_identity(self, length: int) -> bool:
        """Whether it shows an axis of this length as it is; False for every listed map."""
        return self.table is None and self.start == 0 and self.step == 1 and self.length == length

    def shows(self, code: int) -> bool:
        """Whether it shows this (negative) fill code."""
        return self.table is not None and bool((self.table == code).any())

    def array(self) -> npt.NDArray[np.int32]:
        """The map as int32[length], read-only."""
        return _progression(self.start, self.step, self.length) if self.table is None else self.table

    def flip(self) -> Index:
        if self.table is None:
            return Index(self.start + self.step * (self.length - 1), -self.step, self.length)
        return Index.listed(self.table[::-1])

    def crop(self, offset: int, length: int, fill: int) -> Index:
        """Positions ``offset .. offset + length - 1``; those outside the axis show the fill code ``fill``."""
        if offset >= 0 and offset + length <= self.length:
            if self.table is None:
                return Index(self.start + self.step * offset, self.step, length)
            return Index.listed(self.table[offset : offset + length])
        entries = np.full(length, fill, np.int32)
        first, last = max(offset, 0), min(offset + length, self.length)
        if first < last:
            entries[first - offset : last - offset] = self.array()[first:last]
        return Index.listed(entries)

    def pad(self, before: int, after: int, mode: PadMode, fill: int) -> Index:
        """The map with ``before`` and ``after`` more positions, as of ``numpy.pad``; constant ones show ``fill``."""
        if mode == "constant":
            return self.crop(-before, before + self.length + after, fill)
        return Index.listed(np.pad(self.array(), (before, after), mode=mode))

    def take_or_fill(self, positions: npt.NDArray[np.int32]) -> Index:
        """The map that shows this one at ``positions``; fill codes among them stay."""
        return Index.listed(np.where(positions < 0, positions, self.array()[np.maximum(positions, 0)]))

    def shift(self, offset: int) -> Index:
        """The same map onto an axis that begins ``offset`` positions earlier (fill codes stay).

        Listed positions before that axis, which are not used, become 0, because negative ones would mean fill.
        """
        if offset == 0:
            return self
        if self.table is None:
            return Index(self.start + offset, self.step, self.length)
        return Index.listed(np.where(self.table < 0, self.table, np.maximum(self.table + offset, 0)))

    def span(self) -> tuple[int, int]:
        """The half-open range of input positions shown; (0, 0) if it shows only fill."""
        return self.span_of(0, self.length)

    def span_of(self, first: int, last: int) -> tuple[int, int]:
        """The half-open range of input positions shown at positions ``first .. last - 1``; (0, 0) if only fill."""
        if first >= last:
            return 0, 0
        if self.table is None:
            one, other = self.start + self.step * first, self.start + self.step * (last - 1)
            return (one, other + 1) if one <= other else (other, one + 1)
        shown = self.table[max(first, 0) : last]
        shown = shown[shown >= 0]
        return (int(shown.min()), int(shown.max()) + 1) if len(shown) else (0, 0)


@lru_cache(maxsize=512)
def _progression(start: int, step: int, length: int) -> npt.NDArray[np.int32]:
    positions = np.arange(start, start + step * length, step, dtype=np.int32)
    positions.flags.writeable = False
    return positions


def nearest(size_in: int, size_out: int) -> npt.NDArray[np.int32]:
    """The input positions that Pillow's NEAREST resize shows, int32[size_out].

    Pillow (src/libImaging/Geometry.c, ImagingScaleAffine) adds up the scale in float64, position by position. A product
    would round differently, so the sum is computed in the same way.
    """
    scale = size_in / size_out
    steps = np.full(size_out, scale)
    steps[0] = scale * 0.5
    return np.minimum(np.cumsum(steps).astype(np.int32), size_in - 1)


def scaled(size_in: int, size_out: int, scale: float, offset: float, fill: int) -> npt.NDArray[np.int32]:
    """The input positions of one axis in Pillow's NEAREST affine transform, if they do not depend on the other axis.

    ``offset + scale * (position + 0.5)``, added up in float64 as in Pillow (Geometry.c, ImagingScaleAffine); ``fill``
    if that is outside. int32[size_out].
    """
    steps = np.full(size_out, scale)
    steps[0] = offset + scale * 0.5
    places = np.cumsum(steps)
    inside = (places >= 0) & (places < size_in)
    return np.where(inside, np.where(inside, places, 0).astype(np.int32), fill).astype(np.int32)
