"""Running work that a DataLoader's worker has finished (``finished``): bound to a device's memory, sent, launched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from accel.backends.cuda.device import ROOM, Device, Work
from accel.backends.cuda.finished import Section, Summary, fill_upload
from accel.backends.cuda.jpeg import Decoding
from accel.backends.cuda.jpeg.decoder import Indexing, Made
from accel.backends.cuda.jpeg.headers import Integers
from accel.backends.cuda.jpeg.index import SEGMENT, Known
from accel.backends.cuda.pinned_pool import PinnedPool
from accel.codec.engines import Box
from accel.codec.jpeg import header_fields as hd
from accel.recipes.rows import Ahead
from accel.system import counters

Bytes = npt.NDArray[np.uint8]
_ALIGNED, _MOVES = 64, 4

DESCRIBED = "the device copies them from where a worker left them, if the driver locks that; else they are gathered"
"""Description of how files are sent, for ``accel.explain``."""


class Ready:
    """One run of finished work, used as ``Execution``, with the ``Decoding`` of its files (flagged after ``launch``).

    The host memory gets what the device tells at its beginning; behind that is what is sent.

    Attributes:
        holes: the boxes that the host decodes, by the images' numbers; they are to be filled in before ``upload``.
    """

    def __init__(self, ahead: Ahead, summary: Summary, result: torch.Tensor, device: Device, pool: PinnedPool) -> None:
        self._device, self._memory, self._begun = device, device.scratch(summary.memory), False
        block = ahead.memory if summary.in_place else None
        in_place = block is not None and block.locked(device.torch_device.type, device.lock)
        if in_place:
            counters.count(counters.IN_PLACE, ahead.shape[0])
        first = -(-summary.report_size // _ALIGNED) * _ALIGNED
        begin = first - (summary.behind if in_place else 0)  # where the device's memory would begin in the host's
        buffer = pool.take(begin + summary.sent)
        indexing = Indexing(summary.indexed, summary.misfits, summary.wanted, partial(_known, ahead))
        self.decoding = Decoding([], summary.decoded, partial(_accepted, ahead), indexing)
        self.decoding.watched = pool, buffer, None
        self._host: Bytes = buffer.numpy()
        calls = np.empty((_MOVES + summary.launches + ROOM, 4), np.uint64)
        self._work = Work(self._memory, calls, _MOVES)
        addresses = self._memory.data_ptr(), result.data_ptr()
        fill_upload(ahead.slot, ahead.files, ahead.first, in_place, *addresses, self._host, first, calls)
        self.holes: dict[int, Box] = {}
        if summary.holes:
            holes = ahead.part(Section.HOLES).view(np.int64).reshape(-1, 6).tolist()
            self._holes = {number: begin + summary.behind + offset for number, offset, *_ in holes}
            self.holes = {number: (a, b, c, d) for number, _, a, b, c, d in holes}

    def pixels(self, number: int, size: int) -> Bytes:
        """The host memory for the pixels of an image that the host decodes, uint8[size]."""
        return self._host[self._holes[number] : self._holes[number] + size]

    def sent(self) -> Sequence[Callable[[], None]]:
        """Tasks that fill in the rest: none, as all is there."""
        return ()

    def upload(self) -> None:
        """Do nothing, as ``launch`` sends everything."""

    def launch(self) -> None:
        """Queue the copies and launches that compute the result."""
        self._begun = True
        self._device.submit(self._work)
        self.decoding.queued((), self._memory, self._device.mark())

    def abandon(self) -> None:
        """Give the host memory back, after waiting for the device's copies from and to it."""
        if self._begun and (mark := self._device.mark()) is not None:
            mark.synchronize()
        self.decoding.give_back()


def _accepted(ahead: Ahead) -> Integers:
    return ahead.part(Section.ACCEPTED).view(np.int64)


def _known(ahead: Ahead) -> Made:
    counts, misfits, wanted, digests = ahead.part(Section.KNOWN).view(np.int64).reshape(4, -1)
    known = Known(np.zeros(0, SEGMENT), counts, counts, wanted != 0, misfits != 0, digests)
    headers = ahead.part(Section.HEADERS).view(np.int64).reshape(-1, hd.HEADER_SIZE)
    return headers, known, ahead.part(Section.POINTS).view(np.int64).reshape(2, -1)


def summary_of(ahead: Ahead) -> Summary:
    return Summary(*ahead.part(Section.SUMMARY).view(np.int64).tolist())


def sizes_of(ahead: Ahead) -> npt.NDArray[np.int64]:
    """The bytes that each image takes on the device."""
    return ahead.part(Section.BYTES).view(np.int64)
