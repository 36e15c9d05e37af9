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

Bytes = npt.NDArray[np.uint8]
_ALIGNED = 64


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
        self._buffer = pool.take(self._size)
        self._given_back = False
        self._host: Bytes = self._buffer.numpy()
        bases = np.zeros(len(Region), np.uint64)
        bases[Region.FILES], bases[Region.UPLOAD] = self._sent.data_ptr(), self._sent.data_ptr() + self._behind
        bases[Region.SCRATCH], bases[Region.RESULT] = self._scratch.data_ptr(), result.data_ptr()
        words = self._host[: self._size // 8 * 8].view(np.uint64)
        pieces, fixups = parts[Part.PIECES].view(np.int64).reshape(-1, 3), parts[Part.FIXUPS].view(np.int32)
        fill_upload(files, pieces, parts[Part.PROGRAM], fixups, bases, self._host, words, self._behind)
        counts, misfits, wanted, digests = parts[Part.KNOWN].view(np.int64).reshape(4, -1)
        known = Known(np.zeros(0, SEGMENT), counts, counts, wanted != 0, misfits != 0, digests, pieces)
        headers = parts[Part.HEADERS].view(np.int64).reshape(-1, hd.HEADER_SIZE)
        self.decoding = Decoding([], parts[Part.TAKEN].view(np.int64), headers, known)
        self._points = parts[Part.POINTS].view(np.int64).reshape(2, -1)

    def pixels(self, number: int, size: int) -> Bytes:
        """The host memory for the pixels of an image that the host decodes, uint8[size]."""
        offset = self._holes[number]
        return self._host[offset : offset + size]

    def sent(self) -> Sequence[Callable[[], None]]:
        """Work that fills in all else: none, it is there."""
        return ()

    def upload(self) -> None:
        """Send what the host has."""
        self._sent[: self._size].copy_(self._buffer[: self._size], non_blocking=True)
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
        """Give the memory back, if it was not sent."""
        if not self._given_back:
            self._pool.give_back(self._buffer, None)


def sent_of(ahead: Ahead) -> int:
    """The bytes that are sent to the device: files, and the program behind them."""
    return _behind(ahead.parts[Part.SAID].view(np.int64).tolist()) + len(ahead.parts[Part.PROGRAM])


def _behind(said: Sequence[int]) -> int:
    return -(-said[Said.FILES] // _ALIGNED) * _ALIGNED


def sizes_of(ahead: Ahead) -> npt.NDArray[np.int64]:
    """The bytes that each image takes on the device."""
    return ahead.parts[Part.BYTES].view(np.int64)
