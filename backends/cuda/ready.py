"""Work that a DataLoader's worker has finished (``finished``), on a device: bound to its memory, sent and launched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from accel.backends.cuda.descriptors import Region
from accel.backends.cuda.device import Device, Work
from accel.backends.cuda.finished import Part, Said, fill_upload
from accel.backends.cuda.jpeg import Decoder, Decoding
from accel.backends.cuda.jpeg.decoder import Indexing
from accel.backends.cuda.jpeg.headers import Integers
from accel.backends.cuda.jpeg.index import SEGMENT, Known
from accel.backends.cuda.pinned_pool import PinnedPool
from accel.codec.engines import Box
from accel.codec.jpeg import header_fields as hd
from accel.rows import Ahead
from accel.system import counters

Bytes = npt.NDArray[np.uint8]
_ALIGNED, _APART = 64, 512

DESCRIBED = "whole ones the device copies from where a worker left them, if the driver locks that; others are gathered"
"""How files go over."""


class Ready:
    """One run of it: as ``Execution``, and the ``Decoding`` of its files. ``decoding.flagged`` comes after ``launch``.

    Attributes:
        holes: the boxes that the host decodes, by the number of the image: these are filled in before ``upload``.
    """

    def __init__(
        self, ahead: Ahead, files: Bytes, result: torch.Tensor, device: Device, pool: PinnedPool, decoder: Decoder
    ) -> None:
        self._ahead, self._device, self._pool, self._decoder = ahead, device, pool, decoder
        said = self._said = said_of(ahead)
        words = ahead.slot.view(np.int64)
        parts = words[ahead.first : ahead.first + 2 * len(Part)].tolist()
        pieces, self._behind = parts[2 * Part.PIECES + 1] // 24, _behind(said)
        self._size = self._behind + parts[2 * Part.PROGRAM + 1]
        self._scratch = -(-self._size // _APART) * _APART  # where in the device's memory
        self._memory = device.scratch(self._scratch + said[Said.SCRATCH])
        self._in_place: Bytes | None = None  # the files, where the device copies them from where they lie
        self._staged = 0  # from where on the host gathers what is sent
        memory = ahead.memory if said[Said.IN_PLACE] else None
        if memory is not None and memory.locked(device.torch_device.type, device.lock):
            self._in_place, self._staged, pieces = files[: said[Said.FILES]], self._behind, 0
            counters.count(counters.IN_PLACE, ahead.shape[0])
        self._buffer = pool.take(self._size - self._staged)
        self._begun = self._given_back = False
        self._host: Bytes = self._buffer.numpy()
        address = self._memory.data_ptr()
        bases = [0] * len(Region)
        bases[Region.FILES], bases[Region.UPLOAD] = address, address + self._behind
        bases[Region.SCRATCH], bases[Region.RESULT] = address + self._scratch, result.data_ptr()
        self._launches = np.empty((parts[2 * Part.LAUNCHES + 1] // 32, 4), np.uint64)
        fill_upload(
            files, words, words.view(np.int32), ahead.first, pieces, self._behind - self._staged,
            np.array(bases, np.uint64), self._host, self._host.view(np.uint64), self._launches,
        )  # fmt: skip
        self.holes: dict[int, Box] = {}
        if parts[2 * Part.HOLES + 1]:
            holes = ahead.part(Part.HOLES).view(np.int64).reshape(-1, 6).tolist()
            self._holes = {number: self._behind + offset for number, offset, *_ in holes}
            self.holes = {number: (a, b, c, d) for number, _, a, b, c, d in holes}
        indexing = Indexing(said[Said.INDEXED], said[Said.MISFITS], said[Said.WANTED], partial(_known, ahead))
        self.decoding = Decoding([], ahead.part(Part.TAKEN).view(np.int64), indexing)

    def pixels(self, number: int, size: int) -> Bytes:
        """The host memory for the pixels of an image that the host decodes, uint8[size]."""
        offset = self._holes[number] - self._staged
        return self._host[offset : offset + size]

    def sent(self) -> Sequence[Callable[[], None]]:
        """Work that fills in all else: none, it is there."""
        return ()

    def upload(self) -> None:
        """Send what the host has: ``launch`` does."""

    def launch(self) -> None:
        """Send what the host has, and compute the result."""
        said, memory, scratch = self._said, self._memory, self._scratch
        states, told = self._decoder.states, scratch + said[Said.TOLD]
        self._told = states.take(said[Said.TOLD_SIZE])
        cleared = scratch + said[Said.CLEARED], scratch + said[Said.CLEARED_END]
        copies = [(self._staged, self._host[: self._size - self._staged])]
        if self._in_place is not None:
            copies.insert(0, (0, self._in_place))
        self._begun = True
        self._device.submit(
            Work(memory, copies, cleared, self._launches, (told, told + said[Said.TOLD_SIZE]), self._told)
        )
        mark = self._device.mark()
        self._given_back = True  # before: what is interrupted after that must not give it back twice
        self._pool.give_back(self._buffer, mark)
        points = self._ahead.part(Part.POINTS).view(np.int64).reshape(2, -1)
        self.decoding.queued((), memory, (states, self._told, mark), points)

    def abandon(self) -> None:
        """Give the memory back. What the device copies by itself, from there or to there, stays until it has."""
        if self._begun and (mark := self._device.mark()) is not None:
            mark.synchronize()
        if not self._given_back:
            self._pool.give_back(self._buffer, None)


def _known(ahead: Ahead) -> tuple[Integers, Known]:
    counts, misfits, wanted, digests = ahead.part(Part.KNOWN).view(np.int64).reshape(4, -1)
    pieces = ahead.part(Part.PIECES).view(np.int64).reshape(-1, 3)
    known = Known(np.zeros(0, SEGMENT), counts, counts, wanted != 0, misfits != 0, digests, pieces)
    return ahead.part(Part.HEADERS).view(np.int64).reshape(-1, hd.HEADER_SIZE), known


def said_of(ahead: Ahead) -> list[int]:
    """See ``Said``."""
    said: list[int] = ahead.part(Part.SAID).view(np.int64).tolist()
    return said


def sent_and_taken(ahead: Ahead) -> tuple[int, int]:
    """The bytes that are sent to the device, files and the program behind them; and the sum of ``sizes_of``."""
    said = said_of(ahead)
    return _behind(said) + ahead.part(Part.PROGRAM).size, said[Said.TAKEN]


def _behind(said: Sequence[int]) -> int:
    return -(-said[Said.FILES] // _ALIGNED) * _ALIGNED


def sizes_of(ahead: Ahead) -> npt.NDArray[np.int64]:
    """The bytes that each image takes on the device."""
    return ahead.part(Part.BYTES).view(np.int64)
