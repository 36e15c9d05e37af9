"""Stream indexes (``accel.codec.jpeg.index_fields``) on the device: segments from indexes, and indexes from points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.backends.cuda.declarations import structure
from accel.backends.cuda.jpeg.headers import UNIT, Integers
from accel.codec.jpeg import header_fields as hd
from accel.codec.jpeg import index_fields as ix
from accel.codec.stream_index import Indexes

SEGMENT, POINT = (structure("jpeg/picture.h", name) for name in ("Segment", "Point"))
_BUCKETS = 256  # into which segments are sorted by length

_MODULE = "backends.cuda.jpeg.read_files"
_READ = "u1[1] i8[2] i8[2] i8[3] u2[1] i8[2]w i4[3]w i4[1]w u8[1]w i8[1]w"
_read = UNIT.function(_MODULE, "read_segments", _READ)
_write = UNIT.function(_MODULE, "write_indexes", "i8[2] i8[1] i8[1] i4[1] i8[1] i8[1] i8[1] i4[1]w u2[1]w")


FIRST, COUNT, WANTED, MISFIT, DIGEST = range(5)


class Known(NamedTuple):
    """The information that indexes give on a batch of files.

    Attributes:
        segments: SEGMENT[...], of all files.
        table: int64 [n, 5], of each file the number of its first segment; how many it has, 0 without a usable index;
            whether an index is to be made; whether the index kept is another file's, or damaged; and the digest, of
            these files and of files with an index.
    """

    segments: npt.NDArray[Any]
    table: Integers


def read(
    files: npt.NDArray[np.uint8],
    starts: Integers,
    sizes: Integers,
    good: npt.NDArray[np.bool_],
    headers: Integers,
    regions: Integers,
    indexes: Indexes,
) -> Known:
    """Read the indexes of n files.

    Args:
        files, starts, sizes: as for ``headers.read``. good, headers, regions: its results.
        indexes: of the files whose index is kept, or will be.
    """
    count, words, which = len(starts), indexes.ends // 2, indexes.numbers
    table = np.zeros((count, 5), np.int64)
    if not len(which):
        return Known(_NO_SEGMENTS, table)
    spans = np.stack([starts, sizes, np.full(count, -1), np.full(count, -1)], 1)
    spans[which, 2:] = np.stack([words - indexes.sizes() // 2, words], 1)
    asked = good & (spans[:, 2] >= 0)
    spans[~asked, 2:] = -1
    if not asked.any():
        return Known(_NO_SEGMENTS, table)
    found = np.zeros((count, 3), np.int64)
    segments = np.empty((2, words[-1] + 1, SEGMENT.itemsize // 4), np.int32)
    plain = np.empty(ix.POINT * ix.most_points(int(sizes.max())), np.int32)
    sums, buckets = np.empty(8, np.uint64), np.empty(_BUCKETS, np.int64)
    content = indexes.content.view(np.uint16)
    total = _read(files, spans, headers, regions, content, found, segments, plain, sums, buckets)
    counts, fits, table[:, DIGEST] = found.T
    table[:, FIRST], table[:, COUNT] = np.cumsum(counts) - counts, counts
    table[:, WANTED] = asked & (counts == 0) & (headers[:, hd.INDEX_BYTES] > 0)
    table[:, MISFIT] = (fits == 0) & (spans[:, 3] > spans[:, 2])
    return Known(segments[0, :total].view(SEGMENT)[:, 0], table)


_NO_SEGMENTS = np.zeros(0, SEGMENT)


def written(
    which: Integers, headers: Integers, known: Integers, report: npt.NDArray[np.uint8], points: Sequence[Integers]
) -> Indexes:
    """Make the indexes of some of the files from POINTs in the kernels' report.

    Args:
        which: the positions of those files in ``headers`` and ``known`` (``Known.table``).
        points: offsets in ``report``, and bytes; each file's last POINT is the one behind its last MCU.
    """
    ends = np.cumsum(headers[which, hd.INDEX_BYTES])
    content = np.zeros(int(ends[-1]), np.uint8)
    words = report[: len(report) // 4 * 4].view(np.int32)
    plain = np.empty(int(points[1].max()) // POINT.itemsize * ix.POINT, np.int32)
    _write(headers, which, np.ascontiguousarray(known[:, DIGEST]), words, *points, ends, plain, content.view(np.uint16))
    return Indexes(which, content, ends)
