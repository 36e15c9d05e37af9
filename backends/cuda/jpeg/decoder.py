"""A batch of JPEG files on the device: uploads, a row of launches, and the files that were not for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from accel.backends.cuda.descriptors import Region, bind
from accel.backends.cuda.device import Device, Mark
from accel.backends.cuda.jpeg import headers, index, layout
from accel.backends.cuda.jpeg.layout import LAUNCHES, STATE, Batch
from accel.backends.cuda.jpeg.wanted import Wanted
from accel.backends.cuda.pinned_pool import PinnedPool
from accel.codec import agreement
from accel.codec.engines import Box, Data, Pixels
from accel.codec.jpeg import header_fields as hd
from accel.codec.jpeg import planes
from accel.codec.jpeg.planes import Packed
from accel.system import counters

_ALIGNED = 64

Integers = npt.NDArray[np.int64]
_NONE: Integers = np.zeros(0, np.int64)
_Watched = tuple[PinnedPool, torch.Tensor, Mark | None]
"""A buffer of a pool, to be read once a mark is reached."""


class Decoding:
    """Files being decoded.

    Attributes:
        addresses: for every file where on the device its pixels will be, uint8 [height, width, channels] without gaps;
            None if its header says that it is not for this decoder. The memory belongs to the stream that was current,
            and stays as long as this object, or until later work on that stream takes it.
        indexes: once ``flagged`` has told: the bytes of the indexes that were made of files, by their numbers.
    """

    def __init__(
        self, addresses: list[int | None], numbers: Sequence[int] = (), headers: Integers = _NONE, known: Any = None
    ) -> None:
        """``numbers``: of those that are decoded, in the decoder's own order; their headers, and ``index.Known``."""
        self.addresses = addresses
        self.indexes: dict[int, npt.NDArray[np.uint8]] = {}
        self._numbers, self._headers, self._known = numbers, headers, known
        self._watched: _Watched | None = None

    def queued(
        self, pixels: Sequence[int], memory: torch.Tensor, watched: _Watched, points: tuple[Integers, Integers]
    ) -> None:
        """At the mark there are pixels at these addresses, in ``memory``, and the pictures' states in the buffer.

        ``points``: offsets in the buffer and sizes of the points that were found.
        """
        for number, address in zip(self._numbers, pixels, strict=True):
            self.addresses[number] = address
        self._memory, self._watched, self._points = memory, watched, points

    def flagged(self) -> list[int]:
        """The numbers of the files whose pixels do not count, because something in the stream is not as it should be.

        Waits, in this thread, until the device has decoded them all. Tells it once.
        """
        if self._watched is None:
            return []
        (pool, buffer, mark), self._watched = self._watched, None
        if mark is not None:
            mark.synchronize()
        count = len(self._numbers)
        reasons = buffer.numpy()[: count * STATE.itemsize].view(STATE)["reason"]
        flagged = [number for number, reason in zip(self._numbers, reasons, strict=True) if reason]
        offsets, sizes = self._points
        for n in np.flatnonzero(self._known.wanted & (reasons == 0)).tolist():
            points = buffer.numpy()[offsets[n] : offsets[n] + sizes[n]].view(index.POINT)
            self.indexes[self._numbers[n]] = index.written(self._headers[n], int(self._known.digests[n]), points)
        pool.give_back(buffer, None)
        for counter, what in ((counters.INDEXED, self._known.counts > 0), (counters.MISFITS, self._known.misfits)):
            if what.any():
                counters.count(counter, int(what.sum()))
        return sorted(flagged)

    def read(self, number: int, size: int) -> Pixels:
        """The first ``size`` bytes of a file's pixels, on the host."""
        address = self.addresses[number]
        assert address is not None
        start = address - self._memory.data_ptr()
        return self._memory[start : start + size].cpu().numpy()


class Decoder:
    """The decoder of one device. What it queues goes to torch's current stream there; threads may share it."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._files, self._descriptors, self._states = (PinnedPool(device.pinned, device.trim) for _ in range(3))
        self._agreed: bool | None = None

    def agrees(self) -> bool:
        """Whether its pixels equal those of the installed Pillow: tried once, on a few small files."""
        if self._agreed is None:
            self._agreed = agreement.agrees("accel on the device", self._pixels)
        return self._agreed

    def decode(self, wanted: Sequence[Wanted | None]) -> Decoding:
        """Queue the decoding of all files whose headers say that they are for this decoder. Waits for nothing."""
        asked = [(number, each) for number, each in enumerate(wanted) if each is not None]
        addresses: list[int | None] = [None] * len(wanted)
        if not asked:
            return Decoding(addresses)
        contents = [_content(each.data) for _, each in asked]
        sizes = np.array([len(each) for each in contents], np.int64)
        starts, total = _places(sizes)
        files = _Upload(self._device, self._files, total)
        for content, start in zip(contents, starts.tolist(), strict=True):
            files.host[start : start + len(content)] = content
        is_whole = all(each.known is None for _, each in asked)
        if is_whole:
            files.send(total)  # on its way while the headers are read
        boxes = np.array([each.box for _, each in asked], np.int64)
        channels = np.array([each.channels for _, each in asked], np.int64)
        good, found, regions = headers.read(files.host, starts, sizes, boxes, channels)
        bands, first_parts = _packed(asked, good, found, regions)
        known = index.read(files.host, starts, sizes, good, found, regions, [each.known for _, each in asked])
        if not is_whole:
            files.send(int(starts[-1] + sizes[-1]))
        files.done()
        taken = np.flatnonzero(good)
        taken = taken[np.argsort(-sizes[taken], kind="stable")]  # what takes longest begins first
        if len(taken) == 0:
            return Decoding(addresses)
        known, found, regions = known.of(taken), found[taken], regions[taken]
        batch = layout.lay_out(
            found, regions, starts[taken], sizes[taken], boxes[taken], channels[taken], known,
            bands[taken], first_parts[taken],
        )  # fmt: skip
        decoding = Decoding(addresses, [asked[number][0] for number in taken], found, known)
        self._queue(batch, decoding, files.sent)
        return decoding

    def _queue(self, batch: Batch, decoding: Decoding, files: torch.Tensor) -> None:
        scratch = self._device.scratch(batch.scratch)
        scratch[slice(*batch.cleared)].zero_()
        arrays: list[npt.NDArray[Any]] = [
            batch.segments,
            *(batch.owners(kernel) for kernel in LAUNCHES),
            batch.pictures,
        ]
        starts, total = _places(np.array([array.nbytes for array in arrays], np.int64))
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
        first = int(batch.pieces["state"][0][0])
        points, sizes = batch.pieces["points"]
        told = int(points[-1] + sizes[-1]) - first
        states = self._states.take(told)
        states[:told].copy_(scratch[first : first + told], non_blocking=True)
        watched = self._states, states, self._device.mark()
        decoding.queued(batch.pictures["pixels"].tolist(), scratch, watched, (points - first, sizes))

    def _pixels(self, data: Data, box: Box, channels: int) -> Pixels | None:
        """Decode one file and bring it to the host, uint8 [height, width, channels]; None where it is not for it."""
        with self._device.enter():
            decoding = self.decode([Wanted(data, box, channels)])
            if decoding.addresses[0] is None or decoding.flagged():
                return None
            shape = (*box[2:], channels)
            return decoding.read(0, int(np.prod(shape))).reshape(shape)


def _content(data: Data | Packed) -> npt.NDArray[np.uint8]:
    return data.parts if isinstance(data, Packed) else np.frombuffer(data, np.uint8)


def _packed(
    asked: Sequence[tuple[int, Wanted]], good: npt.NDArray[np.bool_], found: Integers, regions: Integers
) -> tuple[Integers, Integers]:
    """Put what is kept of planes in the place of what their parts read as headers; MCU rows of a part, first parts."""
    bands, first_parts = np.zeros((2, len(asked)), np.int64)
    for n, (_, each) in enumerate(asked):
        if isinstance(each.data, Packed):
            good[n] = planes.lay_out(each.data, each.box, found[n], regions[n])
            good[n] &= len(each.data.parts) < headers.MAX_FILE and each.channels >= found[n, hd.COMPONENTS]
            bands[n], first_parts[n] = planes.band(each.data) if good[n] else 0, each.data.first
    return bands, first_parts


class _Upload:
    """Host memory that is sent to the device as it is."""

    def __init__(self, device: Device, pool: PinnedPool, size: int) -> None:
        self._device, self._pool = device, pool
        self._buffer, self.sent = pool.take(size), device.scratch(size)
        self.host: npt.NDArray[np.uint8] = self._buffer.numpy()
        self._mark: Mark | None = None

    def send(self, size: int) -> None:
        """Queue the copy of so many bytes to ``sent``; ``host`` may be read until ``done``."""
        self.sent[:size].copy_(self._buffer[:size], non_blocking=True)
        self._mark = self._device.mark()

    def done(self) -> None:
        self._pool.give_back(self._buffer, self._mark)


def _places(sizes: Integers) -> tuple[Integers, int]:
    """Offsets of pieces of these sizes one after another, with room for whole loads; and the end."""
    taken = -(-sizes // _ALIGNED) * _ALIGNED
    return np.cumsum(taken) - taken, int(taken.sum())
