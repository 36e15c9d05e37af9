"""The files of a plan for the JPEG decoder on the device, and what is known of them before they are sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.backends.cuda.jpeg.headers import UNIT
from accel.codec import stream_index
from accel.codec.engines import Box, Data
from accel.codec.header import Header, Raw
from accel.codec.store import Keys
from accel.codec.stream_index import NO_INDEXES, Indexes
from accel.errors import DecodeError
from accel.planning.plan import Decode, LatePlan, Plan
from accel.recipes.options import Options
from accel.recipes.recipe import Source
from accel.recipes.sources import Files, Numbers
from accel.runtime.memo import cached, indexes

_device_bytes = UNIT.function("backends.cuda.jpeg.read_files", "device_bytes", "i8[1] i8[2] i8[2] i8[1] i8[1]w")

INDEXED = 1 << 22
"""The least bytes of files decoded together that use indexes. By index an H200 took 1.7 times as long for one of
23 KB, but 0.8 times for 32 of 4.4 MB, and 0.6 to 0.7 times for more."""


class Request(NamedTuple):
    """The wanted region ``box`` (top, left, height, width) of a JPEG file, in 1 or 3 channels.

    ``data``: the file. ``known``: the bytes of its index, uint8[n], empty if not known yet; None if no index is kept
    for it.
    """

    data: Data
    box: Box
    channels: int
    known: npt.NDArray[np.uint8] | None = None


def by_index(decodes: Sequence[Decode], options: Options) -> bool:
    """Whether files that are decoded together use indexes, and get them."""
    if options.cache is None:
        return False
    return sum(_size(each.source) for each in decodes if can_decode(each.source.header)) >= INDEXED


def describe_indexes(decodes: Sequence[Decode], options: Options, on_device: bool) -> list[str]:
    """Lines for ``accel.explain`` on the indexes of files that are decoded together."""
    if on_device and options.cache is not None and not by_index(decodes, options):
        return [f"stream index: none is used or made, as the batch has fewer than {INDEXED} bytes of files"]
    return stream_index.describe([each.source.key for each in decodes], options.cache)


def request_of(decode: Decode, by_index: bool) -> Request | None:
    """The region that a plan wants of a source, if that may be a file for the decoder; else None.

    None also for a file that was not read when it was opened and cannot be read now, so that the host raises the
    error.
    """
    if not can_decode(decode.source.header):
        return None
    try:
        data = decode.source.data
        if not by_index:
            return Request(data, decode.box, decode.channels)
        durable = indexes.of(decode.source) if cached.in_use else None
        return Request(data, decode.box, decode.channels, stream_index.known(decode.source.key, durable))
    except DecodeError:
        return None


class Chosen(NamedTuple):
    """The regions that a plan wants of the files that may be for the decoder.

    Attributes:
        numbers: int64 [n], the files' numbers among the plan's sources.
        content: uint8 [...], the memory in which they lie, each at a multiple of ``ALIGNED``.
        starts, sizes: int64 [n], where they lie. boxes, channels: int64 [n, 4] and [n], the wanted regions.
        indexes: the bytes of their stream indexes.
    """

    numbers: Numbers
    content: npt.NDArray[np.uint8]
    starts: Numbers
    sizes: Numbers
    boxes: Numbers
    channels: Numbers
    indexes: Indexes = NO_INDEXES

    def moved(self, gather: Gather) -> Chosen:
        """The same files in other memory, without what lies between them."""
        places = zip(self.starts.tolist(), self.sizes.tolist(), strict=True)
        content, starts, sizes = gather([self.content[start : start + size] for start, size in places])
        return self._replace(content=content, starts=starts, sizes=sizes)


Gather = Callable[[Sequence[Any]], tuple[npt.NDArray[np.uint8], Numbers, Numbers]]
"""Copies pieces into one memory, where each begins at a multiple of ``ALIGNED``; returns that, and their offsets and
sizes, int64 [n]."""


def together(sources: Sequence[Source], boxes: Numbers, channels: Numbers, options: Options, gather: Gather) -> Chosen:
    """The files among sources of which no cache has anything; those that lie apart are gathered.

    ``boxes``: int64 [n, 4], the wanted regions. ``channels``: int64 [n].
    """
    indexes = NO_INDEXES
    if isinstance(sources, Files):
        (numbers,) = sources.plain().nonzero()
        content, (starts, sizes) = sources.content, sources.places[numbers].T.copy()
    else:
        read = {number: data for number, source in enumerate(sources) if (data := _read(source)) is not None}
        numbers = np.array([*read], np.int64)
        content, starts, sizes = gather([*read.values()])
    if options.cache is not None and sizes.sum() >= INDEXED:
        indexes = stream_index.known_of(_keys(sources, numbers))
    return Chosen(numbers, content, starts, sizes, boxes[numbers], channels[numbers], indexes)


def _read(source: Source) -> Data | None:
    """The bytes of a source that may be a file for the decoder; None if it is not, or cannot be read."""
    try:
        return source.data if can_decode(source.header) else None
    except DecodeError:
        return None


def gathered(wanted: Sequence[Request | None], gather: Gather) -> Chosen:
    """Files that are wanted one by one, by their numbers, in one memory."""
    numbers = [number for number, each in enumerate(wanted) if each is not None]
    requests = [each for each in wanted if each is not None]
    return Chosen(
        np.array(numbers, np.int64),
        *gather([each.data for each in requests]),
        np.array([each.box for each in requests], np.int64).reshape(-1, 4),
        np.array([each.channels for each in requests], np.int64),
        Indexes.of({n: each.known for n, each in enumerate(requests) if each.known is not None}),
    )


def sources_of(plan: Plan) -> Sequence[Source]:
    """The sources of a plan, by their numbers."""
    recipes: Any = plan.recipes if isinstance(plan, LatePlan) else None
    return [each.source for each in plan.decodes] if recipes is None else recipes.sources


def keys_of(plan: Plan, numbers: Numbers) -> Keys:
    """The keys of the sources with these numbers in a plan."""
    return _keys(sources_of(plan), numbers)


def _keys(sources: Sequence[Source], numbers: Numbers) -> Keys:
    if isinstance(sources, Files):
        return sources.keys().some(numbers)
    return Keys.of([sources[number].key for number in numbers.tolist()])


def can_decode(header: Header | Raw | None) -> bool:
    """Whether a file with this header may be one for the decoder."""
    return isinstance(header, Header) and header.plain


def device_bytes(sources: Sequence[Source], table: Numbers, boxes: Numbers, channels: Numbers) -> Numbers:
    """The approximate memory that decoding each source takes on the device, int64 [n]; 0 if it is not for the decoder.

    ``table``: the sources' ``Sources.table``. ``boxes``: int64 [n, 4]. ``channels``: int64 [n].
    """
    if isinstance(sources, Files):
        sizes = sources.places[:, 1] * sources.plain()
    else:
        sizes = np.array([_size(each) if can_decode(each.header) else 0 for each in sources], np.int64)
    total = np.empty(len(sizes), np.int64)
    _device_bytes(sizes, table, boxes, channels, total)
    return total


def _size(source: Source) -> int:
    """The bytes of a source that may be uploaded."""
    try:
        return len(source.data)
    except DecodeError:
        return 0
