"""Describing files for the kernels, from their headers and indexes, without a device."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from accel.backends.cuda.jpeg import headers, index, layout
from accel.backends.cuda.jpeg.headers import Integers
from accel.backends.cuda.jpeg.index import Known
from accel.backends.cuda.jpeg.layout import PictureBatch
from accel.backends.cuda.regions import ALIGNED
from accel.codec.stream_index import Indexes


class Described(NamedTuple):
    """Files described for the kernels, complete but for a device's memory.

    Attributes:
        accepted: the numbers of the wanted files that are for the decoder, in its own order.
        good, files, headers, known: of all wanted files: whether they are among these, ``layout.lay_out``'s ``files``,
            their headers, and what indexes say of them.
        batch: the descriptors of those accepted; None if there are none.
    """

    accepted: Integers
    good: npt.NDArray[np.bool_]
    files: Integers
    headers: Integers
    known: Known
    batch: PictureBatch | None


def describe(
    files: npt.NDArray[np.uint8],
    starts: Integers,
    sizes: Integers,
    boxes: Integers,
    channels: Integers,
    indexes: Indexes,
) -> Described:
    """Describe the wanted regions of n files in a buffer.

    Args:
        starts, sizes: int64[n], where they lie. boxes, channels: int64[n, 4] and int64[n], the wanted regions.
        indexes: see ``index.read``.
    """
    good, found, regions, taken = headers.read(files, starts, sizes, boxes, channels)
    known = index.read(files, starts, sizes, good, found, regions, indexes)
    (accepted,) = good.nonzero()
    accepted = accepted[(-sizes[accepted]).argsort(kind="stable")]  # those that take longest begin first
    batch = layout.lay_out(found, regions, taken, boxes, known, accepted) if len(accepted) else None
    return Described(accepted, good, taken, found, known, batch)


def places(sizes: Integers) -> tuple[Integers, int]:
    """Offsets of pieces of these sizes one after another, each padded to ``ALIGNED``; and the end."""
    accepted = -(-sizes // ALIGNED) * ALIGNED
    return np.cumsum(accepted) - accepted, int(accepted.sum())
