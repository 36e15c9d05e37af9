"""Computing the descriptors of a batch and the places of its memory, for all its files at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.backends.cuda.declarations import constant, structure
from accel.backends.cuda.jpeg.batch_fields import LAUNCHES, PIECES
from accel.backends.cuda.jpeg.headers import UNIT, Integers
from accel.backends.cuda.jpeg.index import Known

PICTURE, STATE = structure("jpeg/picture.h", "Picture"), structure("jpeg/picture.h", "State")

COMPONENTS, TABLES = (constant("jpeg/picture.h", name) for name in ("COMPONENTS", "TABLES"))

_lay_out = UNIT.function(
    "backends.cuda.jpeg.lay_out_files",
    "lay_out_files",
    "i8[2] i8[3] i8[2] i8[2] i8[2] i8[1] i4[2]w i8[2]w i8[3]w i8[1]w",
)

Pieces = dict[str, Integers]
"""Offsets and sizes of every picture's memory, int64 [2, n], by kind."""

PIXELS, _COEFFICIENTS, _STATE, _POINTS = map(PIECES.index, ("pixels", "coefficients", "state", "points"))


class PictureBatch(NamedTuple):
    """Pictures described for the kernels.

    Attributes:
        pictures: PICTURE[n], addresses as places (``..descriptors``).
        each: for every one of LAUNCHES the number of thread blocks of each picture, int64 [LAUNCHES, n].
        scratch: bytes of working memory; ``memory``: offsets and sizes of its pieces, int64 [2, PIECES, n]. States lie
            side by side, points behind them. begins: where each kind of PIECES begins.
        totals: the number of thread blocks for every one of LAUNCHES.
        segments: SEGMENT[...], of all pictures that have an index; their places are in ``Region.UPLOAD``.
    """

    pictures: npt.NDArray[Any]
    each: Integers
    scratch: int
    memory: Integers
    begins: list[int]
    totals: list[int]
    segments: npt.NDArray[Any]

    @property
    def blocks(self) -> dict[str, Integers]:
        """``each`` by the kernels' names."""
        return dict(zip(LAUNCHES, self.each, strict=True))

    @property
    def pieces(self) -> Pieces:
        """``memory`` by the pieces' names."""
        return dict(zip(PIECES, self.memory.transpose(1, 0, 2), strict=True))

    @property
    def cleared(self) -> tuple[int, int]:
        """The part of the working memory that must be zero, a half-open range."""
        return self.begins[_COEFFICIENTS], self.begins[_POINTS]

    def report(self) -> tuple[int, int]:
        """The offset and bytes of the part of scratch memory that the host gets: all states, and then all points."""
        return self.begins[_STATE], int(self.memory[:, _POINTS, -1].sum()) - self.begins[_STATE]

    def points(self) -> Integers:
        """The offsets in the report, and the sizes, of each picture's points: int64 [2, n]."""
        found = self.memory[:, _POINTS].copy()
        found[0] -= self.begins[_STATE]
        return found


def lay_out(
    headers: Integers, regions: Integers, files: Integers, boxes: Integers, known: Known, accepted: Integers
) -> PictureBatch:
    """Describe the files of these numbers, ``accepted``, all of which must be for the kernels.

    Args:
        headers, regions: as returned by ``headers.read``.
        files: int64[n, 3]: offset in ``Region.FILES``, bytes, and wanted channels.
        boxes: int64[n, 4], the wanted regions.
        known: see ``index.read``.
    """
    count = len(accepted)
    pictures = np.zeros(count, PICTURE)
    blocks, numbers = np.empty((len(LAUNCHES), count), np.int64), np.empty(_NUMBERS + 6, np.int64)
    memory = np.empty((2, len(PIECES), count), np.int64)
    words = pictures.view(np.int32).reshape(count, -1)
    asked = headers, regions, files, boxes, known.table, accepted
    scratch, found = _lay_out(*asked, words, blocks, memory, numbers), numbers[:_NUMBERS].tolist()
    return PictureBatch(pictures, blocks, scratch, memory, found[: len(PIECES)], found[len(PIECES) :], known.segments)


_NUMBERS = len(PIECES) + len(LAUNCHES)
