"""Decoding files on the device without anything behind it: to try it against Pillow, and to measure it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accel.backends.cuda.device import Device
from accel.backends.cuda.execution import Execution, HostMemory
from accel.backends.cuda.finished import finish
from accel.backends.cuda.jpeg import Decoding, Request
from accel.backends.cuda.jpeg.requests import gathered
from accel.backends.cuda.pinned_pool import PinnedPool
from accel.backends.cuda.schedule import Schedule
from accel.codec import agreement
from accel.codec.engines import Box, Data, Pixels
from accel.runtime.parallel import ParallelFor


class Decoder:
    """The decoder of one device. It queues work on torch's current stream there; threads may share it.

    Attributes:
        files, programs: pools of pinned memory, which have whole batches' files and programs.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self.files, self.programs = (PinnedPool(device.pinned, device.trim) for _ in range(2))
        self._agreed: bool | None = None

    def agrees(self) -> bool:
        """Whether its pixels equal the installed Pillow's, tried once, on a few small files."""
        if self._agreed is None:
            self._agreed = agreement.agrees("accel on the device", self._pixels)
        return self._agreed

    def memory(self, parallel: ParallelFor | None = None) -> HostMemory:
        """Host memory for a batch, into which threads copy files that lie apart."""
        return HostMemory(self.programs, self.files, parallel)

    def decode(self, wanted: Sequence[Request | None]) -> Decoding:
        """Queue the decoding of all files that are for this decoder by their headers. Does not wait."""
        return self.run(wanted).decoding

    def run(self, wanted: Sequence[Request | None]) -> Execution:
        """``decode``, with what the device was given."""
        host = self.memory()
        finished = finish(len(wanted), gathered(wanted, host.gather), lambda _: Schedule(), host.take)
        execution = Execution(finished, self._device.empty((0,)), self._device, host)
        execution.launch()
        decoding, batch = execution.decoding, finished.batch
        decoding.addresses = [None] * len(wanted)
        if batch is not None:
            for number, at in zip(decoding.numbers().tolist(), batch.pieces["pixels"][0].tolist(), strict=True):
                decoding.addresses[number] = execution.work.memory.data_ptr() + finished.summary.working + at
        return execution

    def _pixels(self, data: Data, box: Box, channels: int) -> Pixels | None:
        """Decode a file and copy it to the host, uint8 [height, width, channels]; None if the decoder declines it."""
        with self._device.enter():
            decoding = self.decode([Request(data, box, channels)])
            if decoding.addresses[0] is None or decoding.flagged():
                return None
            shape = (*box[2:], channels)
            return decoding.read(0, int(np.prod(shape))).reshape(shape)
