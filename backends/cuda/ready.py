"""Work that a DataLoader's worker has finished (``finished``), on a device: bound to its memory, sent and launched."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch

from accel.backends.cuda.descriptors import Region
from accel.backends.cuda.device import Device
from accel.backends.cuda.finished import KERNELS, Part, Said, fill_upload
from accel.backends.cuda.jpeg import Decoder, Decoding
from accel.backends.cuda.jpeg.index import SEGMENT, Known
from accel.backends.cuda.pinned_pool import PinnedPool
from accel.codec.engines import Box
from accel.codec.jpeg import header_fields as hd
from accel.rows import Ahead
from accel.system import counters
from accel.system.page_locks import Block

Bytes = npt.NDArray[np.uint8]
_ALIGNED = 64

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
        parts = ahead.parts
        said = parts[Part.SAID].view(np.int64).tolist()
        self._device, self._pool, self._decoder = device, pool, decoder
        self._said = said
        self._launches = parts[Part.LAUNCHES].view(np.int64).reshape(-1, 4).tolist()
        holes = parts[Part.HOLES].view(np.int64).reshape(-1, 6).tolist()
        self._behind, self._size = _behind(said), sent_of(ahead)
        self._holes = {number: self._behind + offset for number, offset, *_ in holes}
        self.holes: dict[int, Box] = {number: (a, b, c, d) for number, _, a, b, c, d in holes}
        self._sent, self._scratch = device.scratch(self._size), device.scratch(said[Said.SCRATCH])
        self._in_place: torch.Tensor | None = None  # the files, where the device copies them from where they lie
        self._staged = 0  # from where on the host gathers what is sent
        pieces = parts[Part.PIECES].view(np.int64).reshape(-1, 3)
        memory = in_place(ahead)
        if memory is not None and memory.locked(device.torch_device.type, device.lock):
            self._in_place, self._staged = torch.from_numpy(files[: said[Said.FILES]]), self._behind
            pieces = pieces[:0]
            counters.count(counters.IN_PLACE, ahead.shape[0])
        self._buffer = pool.take(self._size - self._staged)
        self._begun = self._given_back = False
        self._host: Bytes = self._buffer.numpy()
        bases = np.zeros(len(Region), np.uint64)
        bases[Region.FILES], bases[Region.UPLOAD] = self._sent.data_ptr(), self._sent.data_ptr() + self._behind
        bases[Region.SCRATCH], bases[Region.RESULT] = self._scratch.data_ptr(), result.data_ptr()
        words, fixups = self._host[: len(self._host) // 8 * 8].view(np.uint64), parts[Part.FIXUPS].view(np.int32)
        program = self._behind - self._staged
        fill_upload(files, pieces, parts[Part.PROGRAM], fixups, bases, self._host, words, program)
        counts, misfits, wanted, digests = parts[Part.KNOWN].view(np.int64).reshape(4, -1)
        known = Known(np.zeros(0, SEGMENT), counts, counts, wanted != 0, misfits != 0, digests, pieces)
        headers = parts[Part.HEADERS].view(np.int64).reshape(-1, hd.HEADER_SIZE)
        self.decoding = Decoding([], parts[Part.TAKEN].view(np.int64), headers, known)
        self._points = parts[Part.POINTS].view(np.int64).reshape(2, -1)

    def pixels(self, number: int, size: int) -> Bytes:
        """The host memory for the pixels of an image that the host decodes, uint8[size]."""
        offset = self._holes[number] - self._staged
        return self._host[offset : offset + size]

    def sent(self) -> Sequence[Callable[[], None]]:
        """Work that fills in all else: none, it is there."""
        return ()

    def upload(self) -> None:
        """Send what the host has."""
        self._begun = True
        if self._in_place is not None:
            self._sent[: len(self._in_place)].copy_(self._in_place, non_blocking=True)
        staged = self._size - self._staged
        self._sent[self._staged : self._size].copy_(self._buffer[:staged], non_blocking=True)
        self._pool.give_back(self._buffer, self._device.mark())
        self._given_back = True

    def launch(self) -> None:
        """Compute the result."""
        said, scratch = self._said, self._scratch
        scratch[said[Said.CLEARED] : said[Said.CLEARED_END]].zero_()
        base = self._sent.data_ptr() + self._behind
        launches = self._launches
        self._device.launch_all([(KERNELS[kernel], blocks, base + a, base + b) for kernel, blocks, a, b in launches])
        first = said[Said.TOLD]
        watched = self._decoder.watch(scratch[first : first + said[Said.TOLD_SIZE]])
        self.decoding.queued((), scratch, watched, (self._points[0], self._points[1]))

    def abandon(self) -> None:
        """Give the memory back, if it was not sent; what the device copies by itself stays until it has."""
        if self._begun and self._in_place is not None and (mark := self._device.mark()) is not None:
            mark.synchronize()
        if not self._given_back:
            self._pool.give_back(self._buffer, None)


def in_place(ahead: Ahead) -> Block | None:
    """The memory from which the files may be sent as they lie there; None: what is needed of them is gathered."""
    return ahead.memory if ahead.parts[Part.SAID].view(np.int64)[Said.IN_PLACE] else None


def sent_of(ahead: Ahead) -> int:
    """The bytes that are sent to the device: files, and the program behind them."""
    return _behind(ahead.parts[Part.SAID].view(np.int64).tolist()) + len(ahead.parts[Part.PROGRAM])


def _behind(said: Sequence[int]) -> int:
    return -(-said[Said.FILES] // _ALIGNED) * _ALIGNED


def sizes_of(ahead: Ahead) -> npt.NDArray[np.int64]:
    """The bytes that each image takes on the device."""
    return ahead.parts[Part.BYTES].view(np.int64)
