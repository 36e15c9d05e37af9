"""Decoding a batch of JPEG files on the device: uploads, launches, and the files that the kernels could not decode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from accel.backends.cuda.descriptors import Region, bind
from accel.backends.cuda.device import Device, Mark
from accel.backends.cuda.jpeg import index
from accel.backends.cuda.jpeg.batch_fields import LAUNCHES
from accel.backends.cuda.jpeg.described import describe, places
from accel.backends.cuda.jpeg.layout import STATE, PictureBatch
from accel.backends.cuda.jpeg.requests import Request
from accel.backends.cuda.pinned_pool import PinnedPool
from accel.codec import agreement
from accel.codec.engines import Box, Data, Pixels
from accel.codec.jpeg.planes import PackedPlanes
from accel.codec.stream_index import NO_INDEXES, Indexes
from accel.system import counters

Integers = npt.NDArray[np.int64]
_REASON = int(dict(STATE.fields or {})["reason"][1]) // 4  # the word of a state that is 0 if all is well
Watched = tuple[PinnedPool, torch.Tensor, Mark | None]
"""A pool, a buffer of it, and the mark after which the buffer can be read."""
Made = tuple[Integers, index.Known, Integers]
"""Headers of decoded files, what indexes say of them, and the offsets and sizes of each one's points in the report,
int64 [2, n]."""


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

    @classmethod
    def of(cls, headers: Integers, known: index.Known, points: Integers) -> Indexing:
        indexed, misfits, wanted = (int(np.count_nonzero(n)) for n in (known.counts, known.misfits, known.wanted))
        return cls(indexed, misfits, wanted, lambda: (headers, known, points))


class Decoding:
    """Files being decoded.

    Attributes:
        addresses: for every file the device address that its pixels will have, uint8 [height, width, channels], dense;
            None if it is not for this decoder by its header. The memory belongs to the stream that was current, and
            stays as long as this object, or until later work on that stream takes it.
        made: after ``flagged``: the indexes that were made, by the numbers of their files.
        watched: the buffer that gets the pictures' states and, once they are ``queued``, its mark.
    """

    def __init__(
        self,
        addresses: list[int | None],
        count: int = 0,
        numbers: Callable[[], Integers] = lambda: np.zeros(0, np.int64),
        indexing: Indexing | None = None,
    ) -> None:
        """``count``: the number of files decoded. ``numbers``: returns their numbers, in the decoder's own order."""
        self.addresses = addresses
        self.made = NO_INDEXES
        self._count, self._numbers, self._indexing = count, numbers, indexing
        self.watched: Watched | None = None

    def queued(self, pixels: Sequence[int], memory: torch.Tensor, mark: Mark | None) -> None:
        """Set the mark after which pixels are at these addresses in ``memory``, and the pictures' states in the buffer.

        ``pixels``: may be empty if the addresses are not needed.
        """
        if pixels:
            for number, address in zip(self._numbers().tolist(), pixels, strict=True):
                self.addresses[number] = address
        assert self.watched is not None
        self._memory, self.watched = memory, (*self.watched[:2], mark)

    def flagged(self) -> list[int]:
        """The numbers of the files whose pixels are invalid, as something in the stream is unusual.

        Waits, in this thread, until the device has decoded all files. Later calls return none.
        """
        if self.watched is None or self._indexing is None:
            return []
        _, buffer, mark = self.watched
        if mark is not None:
            mark.synchronize()
        report, indexing, flagged = buffer.numpy(), self._indexing, []
        reasons = report[: self._count * STATE.itemsize].view(np.int32)[_REASON :: STATE.itemsize // 4]
        (bad,) = reasons.nonzero()
        if len(bad):
            flagged = sorted(self._numbers()[bad].tolist())
        if indexing.wanted:
            headers, known, points = indexing.made()
            which = np.flatnonzero(known.wanted & (reasons == 0))
            if len(which):
                made = index.written(which, headers, known, report, (points[0], points[1]))
                self.made = made._replace(numbers=self._numbers()[which])
        self.give_back()
        for counter, files in ((counters.INDEXED, indexing.indexed), (counters.MISFITS, indexing.misfits)):
            if files:
                counters.count(counter, files)
        return flagged

    def give_back(self) -> None:
        """Give the buffer back, unless that was done; the device must not write to it any more."""
        if self.watched is not None:
            (pool, buffer, _), self.watched = self.watched, None  # set before: see ``Execution.upload``
            pool.give_back(buffer, None)

    def read(self, number: int, size: int) -> Pixels:
        """Copy the first ``size`` bytes of a file's pixels to the host."""
        address = self.addresses[number]
        assert address is not None
        start = address - self._memory.data_ptr()
        return self._memory[start : start + size].cpu().numpy()


class Decoder:
    """The decoder of one device. It queues work on torch's current stream there; threads may share it."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._files, self._descriptors, self._states = (PinnedPool(device.pinned, device.trim) for _ in range(3))
        self._agreed: bool | None = None

    def agrees(self) -> bool:
        """Whether its pixels equal the installed Pillow's, tried once, on a few small files."""
        if self._agreed is None:
            self._agreed = agreement.agrees("accel on the device", self._pixels)
        return self._agreed

    def decode(self, wanted: Sequence[Request | None]) -> Decoding:
        """Queue the decoding of all files that are for this decoder by their headers. Does not wait."""
        numbers = [number for number, each in enumerate(wanted) if each is not None]
        requests = [each for each in wanted if each is not None]
        addresses: list[int | None] = [None] * len(wanted)
        if not requests:
            return Decoding(addresses)
        contents = [_content(each.data) for each in requests]
        sizes = np.array([len(each) for each in contents], np.int64)
        starts, total = places(sizes)
        files = _Upload(self._device, self._files, total)
        for content, start in zip(contents, starts.tolist(), strict=True):
            files.host[start : start + len(content)] = content
        files.send(total)  # copied while the headers are read
        boxes, channels = np.array([each.box for each in requests]), np.array([each.channels for each in requests])
        indexes = Indexes.of({n: each.known for n, each in enumerate(requests) if each.known is not None})
        packed = {number: each.data for number, each in enumerate(requests) if isinstance(each.data, PackedPlanes)}
        found = describe(files.host, starts, sizes, boxes, channels, indexes, packed)
        files.done()
        if found.batch is None:
            return Decoding(addresses)
        accepted = np.array(numbers, np.int64)[found.accepted]
        points = np.stack(found.batch.report()[1])
        indexing = Indexing.of(found.headers, found.known, points)
        decoding = Decoding(addresses, len(accepted), lambda: accepted, indexing)
        self._queue(found.batch, decoding, files.sent)
        return decoding

    def _queue(self, batch: PictureBatch, decoding: Decoding, files: torch.Tensor) -> None:
        scratch = self._device.scratch(batch.scratch)
        scratch[slice(*batch.cleared)].zero_()
        arrays = batch.sent()
        starts, total = places(np.array([array.nbytes for array in arrays], np.int64))
        upload = _Upload(self._device, self._descriptors, total)
        segments, *owners, pictures = (starts + upload.sent.data_ptr()).tolist()
        bases = {Region.FILES: files.data_ptr(), Region.UPLOAD: segments, Region.SCRATCH: scratch.data_ptr()}
        bind(batch.pictures, bases)
        for array, start in zip(arrays, starts.tolist(), strict=True):
            upload.host[start : start + array.nbytes] = array.view(np.uint8)
        upload.send(total)
        upload.done()
        for kernel, owner in zip(LAUNCHES, owners, strict=True):
            if (blocks := int(batch.blocks[kernel].sum())) > 0:
                self._device.launch(kernel, blocks, pictures, owner)
        (first, size), _ = batch.report()
        states = self._states.take(size)
        decoding.watched = self._states, states, None
        states[:size].copy_(scratch[first : first + size], non_blocking=True)
        decoding.queued(batch.pictures["pixels"].tolist(), scratch, self._device.mark())

    def _pixels(self, data: Data, box: Box, channels: int) -> Pixels | None:
        """Decode a file and copy it to the host, uint8 [height, width, channels]; None if the decoder declines it."""
        with self._device.enter():
            decoding = self.decode([Request(data, box, channels)])
            if decoding.addresses[0] is None or decoding.flagged():
                return None
            shape = (*box[2:], channels)
            return decoding.read(0, int(np.prod(shape))).reshape(shape)


def _content(data: Data | PackedPlanes) -> npt.NDArray[np.uint8]:
    return data.parts if isinstance(data, PackedPlanes) else np.frombuffer(data, np.uint8)


class _Upload:
    """Host memory that is sent to the device unchanged."""

    def __init__(self, device: Device, pool: PinnedPool, size: int) -> None:
        self._device, self._pool = device, pool
        self._buffer, self.sent = pool.take(size), device.scratch(size)
        self.host: npt.NDArray[np.uint8] = self._buffer.numpy()
        self._mark: Mark | None = None

    def send(self, size: int) -> None:
        """Queue the copy of ``size`` bytes to ``sent``; ``host`` may be read until ``done``."""
        self.sent[:size].copy_(self._buffer[:size], non_blocking=True)
        self._mark = self._device.mark()

    def done(self) -> None:
        self._pool.give_back(self._buffer, self._mark)
