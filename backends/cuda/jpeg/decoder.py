"""A batch of JPEG files on the device: uploads, a row of launches, and what came of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from accel.codec import agreement
from accel.codec.engines import Box, Data, Pixels
from accel.codec.jpeg import header as hd

from ..descriptors import Region, bind
from ..device import Device, Mark
from ..staging import Ring
from . import headers
from .descriptors import STATE
from .headers import Headers, Integers
from .layout import Batch, lay_out

KERNELS = (
    *("jpeg_count", "jpeg_offsets", "jpeg_unstuff", "jpeg_tables"),
    *("jpeg_synchronise", "jpeg_join", "jpeg_coefficients", "jpeg_dc", "jpeg_transform", "jpeg_pixels"),
)
"""In the order of their launches."""

_ALIGNED = 64


class Wanted(NamedTuple):
    """The region ``box`` (top, left, height, width) of a JPEG file, in 1 or 3 channels."""

    data: Data
    box: Box
    channels: int


class Decoding:
    """Files being decoded.

    Attributes:
        addresses: for every file where on the device its pixels will be, uint8 [height, width, channels] without gaps;
            None if its header says that it is not for this decoder. The memory belongs to the stream that was current,
            and stays as long as this object, or until later work on that stream takes it.
    """

    def __init__(self, addresses: list[int | None], numbers: Integers, memory: torch.Tensor) -> None:
        self.addresses = addresses
        self._numbers, self._memory = numbers, memory
        self._states: tuple[Ring, torch.Tensor, Mark | None] | None = None

    def watch(self, ring: Ring, states: torch.Tensor, mark: Mark | None) -> None:
        """``states``, from ``ring``, will have the pictures' states at ``mark``."""
        self._states = ring, states, mark

    def flagged(self) -> list[int]:
        """The numbers of the files whose pixels do not count, because something in the stream is not as it should be.

        Waits, in this thread, until the device has decoded them all.
        """
        if self._states is None:
            return []
        (ring, buffer, mark), self._states = self._states, None
        if mark is not None:
            mark.synchronize()
        states = buffer.numpy()[: len(self._numbers) * STATE.itemsize].view(STATE)
        flagged = self._numbers[states["reason"] != 0]
        ring.give_back(buffer, None)
        return sorted(flagged.tolist())

    def read(self, number: int, size: int) -> Pixels:
        """The first ``size`` bytes of a file's pixels, on the host."""
        address = self.addresses[number]
        assert address is not None
        start = address - self._memory.data_ptr()
        return self._memory[start : start + size].cpu().numpy()


class Decoder:
    """The decoder of one device. What it queues goes to torch's current stream there; threads may share it."""

    def __init__(self, device: Device, ring: Ring) -> None:
        """``ring``: of memory that the device can copy from, and to, by itself."""
        self._device, self._ring = device, ring
        self._agreed: bool | None = None

    def agrees(self) -> bool:
        """Whether its pixels equal those of the installed Pillow: tried once, on a few small files."""
        if self._agreed is None:
            self._agreed = agreement.agrees("accel on the device", self._pixels)
        return self._agreed

    def decode(self, wanted: Sequence[Wanted]) -> Decoding:
        """Queue the decoding of all files whose headers say that they are for this decoder. Waits for nothing."""
        sizes = np.array([len(each.data) for each in wanted], np.int64)
        starts, total = _places(sizes)
        files = _Upload(self._device, self._ring, total)
        for each, start in zip(wanted, starts.tolist(), strict=True):
            files.host[start : start + len(each.data)] = np.frombuffer(each.data, np.uint8)
        device_files = files.send()  # on its way while the headers are read
        boxes = np.array([each.box for each in wanted], np.int64).reshape(-1, 4)
        channels = np.array([each.channels for each in wanted], np.int64)
        found = headers.read(files.host, starts, sizes, boxes)
        files.done()
        numbers = _chosen(found, sizes, channels)
        chosen = Headers(found.good[numbers], found.headers[numbers], found.regions[numbers])
        batch = lay_out(chosen, starts[numbers], sizes[numbers], boxes[numbers], channels[numbers])
        return self._queue(batch, numbers, len(wanted), device_files)

    def _queue(self, batch: Batch, numbers: Integers, of: int, files: torch.Tensor) -> Decoding:
        addresses: list[int | None] = [None] * of
        scratch = torch.empty(batch.scratch, dtype=torch.uint8, device=self._device.torch_device)
        decoding = Decoding(addresses, numbers, scratch)
        if len(numbers) == 0:
            return decoding
        scratch[slice(*batch.cleared)].zero_()
        bind(batch.pictures, {Region.UPLOAD: files.data_ptr(), Region.SCRATCH: scratch.data_ptr()})
        arrays: list[npt.NDArray[Any]] = [batch.pictures, *(batch.owners(kernel) for kernel in KERNELS)]
        starts, total = _places(np.array([array.nbytes for array in arrays], np.int64))
        upload = _Upload(self._device, self._ring, total)
        for array, start in zip(arrays, starts.tolist(), strict=True):
            upload.host[start : start + array.nbytes] = array.view(np.uint8)
        told = upload.send()
        upload.done()
        pictures, *owners = (starts + told.data_ptr()).tolist()
        for kernel, owner in zip(KERNELS, owners, strict=True):
            self._device.launch(kernel, int(batch.blocks[kernel].sum()), pictures, owner)
        offsets, sizes = batch.pieces["state"]
        states = self._ring.take(int(sizes.sum()))
        first = int(offsets[0])
        states[: int(sizes.sum())].copy_(scratch[first : first + int(sizes.sum())], non_blocking=True)
        decoding.watch(self._ring, states, self._device.mark())
        for number, address in zip(numbers.tolist(), batch.pictures["pixels"].tolist(), strict=True):
            addresses[number] = address
        return decoding

    def pixels(self, wanted: Wanted) -> Pixels | None:
        """Decode one file and bring it to the host, uint8 [height, width, channels]; None where it is not for it."""
        decoding = self.decode([wanted])
        if decoding.addresses[0] is None or decoding.flagged():
            return None
        shape = (*wanted.box[2:], wanted.channels)
        return decoding.read(0, int(np.prod(shape))).reshape(shape)

    def _pixels(self, data: Data, box: Box, channels: int) -> Pixels | None:
        with self._device.enter():
            return self.pixels(Wanted(data, box, channels))


class _Upload:
    """Host memory that is sent to the device as it is."""

    def __init__(self, device: Device, ring: Ring, size: int) -> None:
        self._device, self._ring, self._size = device, ring, size
        self._buffer = ring.take(size)
        self.host: npt.NDArray[np.uint8] = self._buffer.numpy()
        self._mark: Mark | None = None

    def send(self) -> torch.Tensor:
        """Queue the copy; ``host`` may be read until ``done``."""
        sent = torch.empty(self._size, dtype=torch.uint8, device=self._device.torch_device)
        sent.copy_(self._buffer[: self._size], non_blocking=True)
        self._mark = self._device.mark()
        return sent

    def done(self) -> None:
        self._ring.give_back(self._buffer, self._mark)


def _places(sizes: Integers) -> tuple[Integers, int]:
    """Where pieces of these sizes lie one after another, with room for whole loads; and where they end."""
    taken = -(-sizes // _ALIGNED) * _ALIGNED
    return np.cumsum(taken) - taken, int(taken.sum())


def _chosen(found: Headers, sizes: Integers, channels: Integers) -> Integers:
    """The numbers of the files that are decoded, those that take longest first."""
    colour = found.headers[:, hd.COMPONENTS] == 3
    numbers = np.flatnonzero(found.good & ~(colour & (channels == 1)))
    return numbers[np.argsort(-sizes[numbers], kind="stable")]
