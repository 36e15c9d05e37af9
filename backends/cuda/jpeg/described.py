"""Files as the kernels are to be told of them: from their headers and indexes, without a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from accel.backends.cuda.jpeg import headers, index, layout
from accel.backends.cuda.jpeg.headers import Integers
from accel.backends.cuda.jpeg.index import Known
from accel.backends.cuda.jpeg.layout import Batch
from accel.backends.cuda.jpeg.wanted import Wanted
from accel.codec.jpeg import header_fields as hd
from accel.codec.jpeg import planes
from accel.codec.jpeg.planes import Packed

ALIGNED = 64


class Described(NamedTuple):
    """Files for the kernels, which nothing but a device's memory is missing from.

    Attributes:
        taken: the numbers, among what was wanted, of those that are for the decoder, in its own order.
        headers: of each. known: what indexes say of them. batch: their descriptors; None: there are none.
        size: the bytes of all files that were wanted, as they are to lie on the device (``known.pieces``).
    """

    taken: Integers
    headers: Integers
    known: Known
    batch: Batch | None
    size: int


def describe(
    files: npt.NDArray[np.uint8], starts: Integers, sizes: Integers, wanted: Sequence[Wanted], boxes: Integers
) -> Described:
    """Describe what is wanted of n files that lie in a buffer; they are to be moved there where ``known.moves``.

    Args:
        starts, sizes: int64[n], where they lie. boxes: int64[n, 4], see ``Wanted``.
    """
    channels = np.array([each.channels for each in wanted], np.int64)
    good, found, regions = headers.read(files, starts, sizes, boxes, channels)
    bands, first_parts = _packed(wanted, good, found, regions)
    starts, sizes = starts.copy(), sizes.copy()
    known = index.read(files, starts, sizes, good, found, regions, [each.known for each in wanted])
    taken = np.flatnonzero(good)
    taken = taken[np.argsort(-sizes[taken], kind="stable")]  # what takes longest begins first
    end, found = int(starts[-1] + sizes[-1]), found[taken]
    if len(taken) == 0:
        return Described(taken, found, known, None, end)
    batch = layout.lay_out(
        found, regions[taken], starts[taken], sizes[taken], boxes[taken], channels[taken], known.of(taken),
        bands[taken], first_parts[taken],
    )  # fmt: skip
    return Described(taken, found, known, batch, end)


def _packed(
    wanted: Sequence[Wanted], good: npt.NDArray[np.bool_], found: Integers, regions: Integers
) -> tuple[Integers, Integers]:
    """Put what is kept of planes in the place of what their parts read as headers; MCU rows of a part, first parts."""
    bands, first_parts = np.zeros((2, len(wanted)), np.int64)
    for n, each in enumerate(wanted):
        if isinstance(each.data, Packed):
            good[n] = planes.lay_out(each.data, each.box, found[n], regions[n])
            good[n] &= len(each.data.parts) < headers.MAX_FILE and each.channels >= found[n, hd.COMPONENTS]
            bands[n], first_parts[n] = planes.band(each.data) if good[n] else 0, each.data.first
    return bands, first_parts


def places(sizes: Integers) -> tuple[Integers, int]:
    """Offsets of pieces of these sizes one after another, with room for whole loads; and the end."""
    taken = -(-sizes // ALIGNED) * ALIGNED
    return np.cumsum(taken) - taken, int(taken.sum())
