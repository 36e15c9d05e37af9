"""A batch of JPEG files on the device: uploads, a row of launches, and the files that were not for them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from accel.backends.cuda.descriptors import Region, bind
from accel.backends.cuda.device import Device, Mark
from accel.backends.cuda.jpeg import headers, index, layout
from accel.backends.cuda.jpeg.layout import LAUNCHES, STATE, Batch
from accel.backends.cuda.pinned_pool import PinnedPool
from accel.codec import agreement, stream_index
from accel.codec.engines import Box, Data, Pixels
from accel.codec.header import Header, Raw
from accel.codec.jpeg import header_fields as hd
from accel.codec.jpeg import planes
from accel.codec.jpeg.planes import Packed
from accel.errors import DecodeError
from accel.options import Options
from accel.planning.plan import Decode
from accel.recipe import Source
from accel.runtime import cached, indexes
from accel.runtime.planes import packed, to_fill
from accel.system import counters

_ALIGNED = 64
_FIXED = 1 << 16  # bytes that every file takes: tables, descriptions

Integers = npt.NDArray[np.int64]
_NONE: Integers = np.zeros(0, np.int64)
FEWEST = 64
"""Files of a batch that is decoded by their indexes: 32 gain nothing, as docs/jpeg.md predicts, and 128 do."""

FILLING = 4
"""One file of so many is decoded by the host, where a cache wants planes: the device need not wait long for it."""

_turns = count()


class Wanted(NamedTuple):
    """The region ``box`` (top, left, height, width) of a JPEG file, in 1 or 3 channels.

    ``data``: the file, or what is kept of its planes, whose parts have been compared with their checksums.
    ``known``: the bytes that are kept for its index, uint8[n], perhaps none; None: nobody keeps one.
    """

    data: Data | Packed
    box: Box
    channels: int
    known: npt.NDArray[np.uint8] | None = None


def wanted_of(decode: Decode, options: Options) -> Wanted | None:
    """A region that a plan wants of a source, if that may be a file for the decoder, with what is known of it.

    None, too, for a file that was not read when it was opened, and cannot be now: the host says what that means; and
    for every few files of which a cache has no planes yet: the host decodes them, and puts them in.
    """
    if not is_plain(decode.source.header):
        return None
    found = packed(decode.source, decode.box)
    if found is not None:
        return Wanted(found, decode.box, decode.channels)
    known = decode.source.cached
    if known is not None and known.fills and next(_turns) % FILLING == 0 and to_fill(decode.source):
        return None
    key = None if options.cache is None else decode.source.key
    try:
        data = decode.source.data
        durable = indexes.of(decode.source) if cached.in_use else None
        return Wanted(data, decode.box, decode.channels, stream_index.known(key, durable))
    except DecodeError:
        return None


def by_index(batch: Sequence[Wanted | None]) -> Sequence[Wanted | None]:
    """The same batch, without the indexes that are known where it has too few files to gain by them.

    Few files are decoded as soon as the longest chain of symbols has been walked, and by an index that is a segment.
    """
    if len(batch) >= FEWEST:
        return batch
    return [
        each._replace(known=None) if each is not None and each.known is not None and len(each.known) else each
        for each in batch
    ]


def is_plain(header: Header | Raw | None) -> bool:
    """Whether a source may be a file for the decoder."""
    return isinstance(header, Header) and header.ordinary and not header.progressive


def device_bytes(decode: Decode) -> int:
    """About how much memory the decoding of a source takes on the device; 0 where it is not for the decoder."""
    header = decode.source.header
    if not is_plain(header):
        return 0
    _, _, height, width = decode.box
    samples = 3 * (height + 32) * (width + 32)  # of the region, in whole MCUs, at most
    blocks = 3 * (header.height + 32) * (header.width + 32) // 64
    return _FIXED + 4 * _size(decode.source) + 3 * samples + 8 * blocks + height * width * decode.channels


def _size(source: Source) -> int:
    """The bytes that may be uploaded of it."""
    if source.cached is not None and source.cached.planes is not None:
        kept: int = source.cached.planes.size
        return kept
    try:
        return len(source.data)
    except DecodeError:
        return 0


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
