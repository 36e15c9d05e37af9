"""Stream indexes (``accel.codec.jpeg.index_fields``) on the device: segments from indexes, and indexes from points."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.backends.cuda.declarations import structure
from accel.backends.cuda.jpeg.headers import Integers
from accel.codec.jpeg import SOURCES
from accel.codec.jpeg import header_fields as hd
from accel.codec.jpeg import index_fields as ix
from accel.codec.stream_index import Indexes
from accel.system.native import units

SEGMENT, POINT = (structure("jpeg/picture.h", name) for name in ("Segment", "Point"))
_BUCKETS = 256  # into which segments are sorted by length

UNIT = units.Unit("indexes", "backends/cuda/jpeg/read_index.py", *SOURCES, seconds=1.5)
_MODULE = "backends.cuda.jpeg.read_index"
_read = UNIT.function(
    _MODULE,
    "read_segments",
    "u1[1] i8[1]w i8[1]w i8[2] i8[3] ?[1] bool "
    "u2[1] i8[1] i4[1]w u8[1]w i8[1]w i8[1]w i8[1]w ?[1]w i4[2]w i4[2]w i8[2]w",
)
_move = UNIT.function(_MODULE, "move_pieces", "u1[1]w i8[2]")
_write = UNIT.function(_MODULE, "write_indexes", "i8[2] i8[1] i8[1] i4[1] i8[1] i8[1] i8[1] i4[1]w u2[1]w")


class Known(NamedTuple):
    """The information that indexes give on a batch of files.

    Attributes:
        segments: SEGMENT[...], of all files.
        first, counts: int64[n], each file's segments; a count of 0 if it has no usable index.
        wanted: bool[n], whether an index is to be made. misfits: bool[n], whether the index kept is another file's, or
            damaged.
        digests: int64[n], of these files and of files with an index.
        pieces: int64[n, 5], the bytes that are needed of each file: [3] bytes from offset [0] on, which move to offset
            [2]; and behind them [4] bytes from offset [1] + [3] on.
    """

    segments: npt.NDArray[Any]
    first: Integers
    counts: Integers
    wanted: npt.NDArray[np.bool_]
    misfits: npt.NDArray[np.bool_]
    digests: Integers
    pieces: Integers

    def of(self, taken: Integers) -> Known:
        """The same for some of the files."""
        arrays: Any = self[1:]
        return Known(self.segments, *(each[taken] for each in arrays))


def read(
    files: npt.NDArray[np.uint8],
    starts: Integers,
    sizes: Integers,
    good: npt.NDArray[np.bool_],
    headers: Integers,
    regions: Integers,
    indexes: Indexes,
    moves: bool,
) -> Known:
    """Read the indexes of n files.

    Of a file with an index only the part before the scan and the part that the region needs are used. If it ``moves``
    them, files are to be moved together (``pieces``), and ``starts`` and ``sizes`` are changed to those after the move,
    to which the segments' offsets refer.

    Args:
        files, starts, sizes: as for ``headers.read``; the last two are changed. good, headers, regions: its results.
        indexes: of the files whose index is kept, or will be. moves: whether files may move.
    """
    asked, lengths = np.zeros(len(starts), np.bool_), np.zeros(len(starts), np.int64)
    asked[indexes.numbers] = good[indexes.numbers]
    digests, counts = np.zeros((2, len(starts)), np.int64)
    fits = np.ones(len(starts), np.bool_)
    whole = np.stack([starts, starts, starts, sizes, np.zeros_like(sizes)], 1)
    if not asked.any():
        return Known(np.zeros(0, SEGMENT), counts, counts, asked, asked, digests, whole)
    lengths[indexes.numbers] = indexes.sizes() // 2
    places = np.concatenate([[0], np.cumsum(lengths)])
    segments = np.empty((places[-1] + 1, SEGMENT.itemsize // 4), np.int32)
    pieces = np.empty((len(starts), 5), np.int64)
    total = _read(
        files, starts, sizes, headers, regions, asked, moves, indexes.content.view(np.uint16), places,
        np.empty(ix.POINT * ix.most_points(int(sizes.max())), np.int32), np.empty(8, np.uint64),
        np.empty(_BUCKETS, np.int64), digests, counts, fits, np.empty_like(segments), segments, pieces,
    )  # fmt: skip
    if not (total and moves):
        starts[:], sizes[:], pieces = whole[:, 0], whole[:, 3], whole
    wanted = asked & (counts == 0) & (headers[:, hd.INDEX_BYTES] > 0)
    misfits = ~fits & (np.diff(places) > 0)
    first = np.cumsum(counts) - counts
    return Known(segments[:total].view(SEGMENT)[:, 0], first, counts, wanted, misfits, digests, pieces)


def move(files: npt.NDArray[np.uint8], pieces: Integers) -> None:
    """Move files within their memory as ``pieces`` says."""
    _move(files, pieces)


def written(
    which: Integers, headers: Integers, known: Known, told: npt.NDArray[np.uint8], points: tuple[Integers, Integers]
) -> Indexes:
    """Make the indexes of some of the files from POINTs that the kernels have told.

    Args:
        which: the positions of those files in ``headers`` and ``known``.
        points: offsets in ``told``, and bytes; each file's last POINT is the one behind its last MCU.
    """
    ends = np.cumsum(headers[which, hd.INDEX_BYTES])
    content = np.zeros(int(ends[-1]), np.uint8)
    words = told[: len(told) // 4 * 4].view(np.int32)
    plain = np.empty(int(points[1].max()) // POINT.itemsize * ix.POINT, np.int32)
    _write(headers, which, known.digests, words, *points, ends, plain, content.view(np.uint16))
    return Indexes(which, content, ends)
