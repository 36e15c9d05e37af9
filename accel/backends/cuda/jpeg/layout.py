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

Pieces = dict[str, tuple[Integers, Integers]]
"""Offsets and sizes of every picture's memory, by kind."""


class PictureBatch(NamedTuple):
    """Pictures described for the kernels.

    Attributes:
        pictures: PICTURE[n], addresses as places (``..descriptors``).
        each: for every one of LAUNCHES the number of thread blocks of each picture, int64 [LAUNCHES, n].
        scratch: bytes of working memory; ``pieces``: its pieces by name. States lie side by side, points behind them.
        segments: SEGMENT[...], of all pictures that have an index; their places are in ``Region.UPLOAD``.
        cleared: the part of the working memory that must be zero, a half-open range.
    """

    pictures: npt.NDArray[Any]
    each: Integers
    scratch: int
    pieces: Pieces
    segments: npt.NDArray[Any]
    cleared: tuple[int, int]

    @property
    def blocks(self) -> dict[str, Integers]:
        """``each`` by the kernels' names."""
        return dict(zip(LAUNCHES, self.each, strict=True))

    def report(self) -> tuple[tuple[int, int], tuple[Integers, Integers]]:
        """The offset and bytes of the part of scratch memory that the host gets; and in it the offsets and sizes
        of each picture's points. All states come before all points."""
        first, (points, sizes) = int(self.pieces["state"][0][0]), self.pieces["points"]
        return (first, int(points[-1] + sizes[-1]) - first), (points - first, sizes)


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
    blocks, ends = np.empty((len(LAUNCHES), count), np.int64), np.empty(len(PIECES) + 6, np.int64)
    memory = np.empty((2, len(PIECES), count), np.int64)
    words = pictures.view(np.int32).reshape(count, -1)
    asked = headers, regions, files, boxes, known.table, accepted
    scratch = _lay_out(*asked, words, blocks, memory, ends)
    pieces = {name: (memory[0, number], memory[1, number]) for number, name in enumerate(PIECES)}
    cleared = int(ends[PIECES.index("coefficients")]), int(ends[PIECES.index("points")])
    return PictureBatch(pictures, blocks, scratch, pieces, known.segments, cleared)
