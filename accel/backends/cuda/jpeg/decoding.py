"""Files being decoded on the device: those that the kernels could not decode, and the indexes that were made."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from accel.backends.cuda.device import Mark
from accel.backends.cuda.jpeg import index
from accel.backends.cuda.jpeg.layout import STATE
from accel.backends.cuda.pinned_pool import PinnedPool
from accel.codec.engines import Pixels
from accel.codec.stream_index import NO_INDEXES
from accel.system import counters

Integers = npt.NDArray[np.int64]
_REASON = int(dict(STATE.fields or {})["reason"][1]) // 4  # the word of a state that is 0 if all is well
Watched = tuple[PinnedPool, torch.Tensor, Mark | None]
"""A pool, a buffer of it, and the mark after which the buffer can be read."""
Made = tuple[Integers, Integers, Integers]
"""Headers of decoded files, what indexes say of them (``index.Known.table``), and the offsets and sizes of each one's
points in the report, int64 [2, n]."""


class Indexing(NamedTuple):
    """The use and making of indexes (``index``) for the files of a batch.

    Attributes:
        indexed: the number of files decoded by their indexes. misfits: the number that had another file's.
        wanted: the number of files whose index is to be made. made: returns the data that these are made of.
    """

    indexed: int
    misfits: int
    wanted: int
    made: Callable[[], Made]


class Decoding:
    """Files being decoded.

    Attributes:
        addresses: of every file that was asked for the device address of its pixels, uint8 [height, width, channels],
            dense; None if it is not for this decoder by its header. Only set by ``Decoder.decode``.
        made: after ``flagged``: the indexes that were made, by the numbers of their files.
        watched: the buffer that gets the pictures' states and, once they are ``queued``, its mark.
    """

    def __init__(self, watched: Watched, count: int, numbers: Callable[[], Integers], indexing: Indexing) -> None:
        """``count``: the number of files decoded. ``numbers``: returns their numbers, in the decoder's own order."""
        self.addresses: list[int | None] = []
        self.made = NO_INDEXES
        self._count, self.numbers, self._indexing = count, numbers, indexing
        self.watched: Watched | None = watched

    def queued(self, memory: torch.Tensor, mark: Mark | None) -> None:
        """Set the mark after which pixels are in ``memory``, and the pictures' states in the buffer."""
        assert self.watched is not None
        self._memory, self.watched = memory, (*self.watched[:2], mark)

    def flagged(self) -> list[int]:
        """The numbers of the files whose pixels are invalid, as something in the stream is unusual.

        Waits, in this thread, until the device has decoded all files. Later calls return none.
        """
        if self.watched is None:
            return []
        _, buffer, mark = self.watched
        if self._count == 0:
            self.give_back(mark)
            return []
        if mark is not None:
            mark.synchronize()
        report, indexing, flagged = buffer.numpy(), self._indexing, []
        reasons = report[: self._count * STATE.itemsize].view(np.int32)[_REASON :: STATE.itemsize // 4]
        (bad,) = reasons.nonzero()
        if len(bad):
            flagged = sorted(self.numbers()[bad].tolist())
        if indexing.wanted:
            headers, known, points = indexing.made()
            which = np.flatnonzero((known[:, index.WANTED] != 0) & (reasons == 0))
            if len(which):
                made = index.written(which, headers, known, report, (points[0], points[1]))
                self.made = made._replace(numbers=self.numbers()[which])
        self.give_back()
        for counter, files in ((counters.INDEXED, indexing.indexed), (counters.MISFITS, indexing.misfits)):
            if files:
                counters.count(counter, files)
        return flagged

    def give_back(self, mark: Mark | None = None) -> None:
        """Give the buffer back, unless that was done; the device does not use it any more once ``mark`` is reached."""
        if self.watched is not None:
            (pool, buffer, _), self.watched = self.watched, None  # set before: an interrupt must not give it back twice
            pool.give_back(buffer, mark)

    def read(self, number: int, size: int) -> Pixels:
        """Copy the first ``size`` bytes of a file's pixels to the host."""
        address = self.addresses[number]
        assert address is not None
        start = address - self._memory.data_ptr()
        return self._memory[start : start + size].cpu().numpy()
