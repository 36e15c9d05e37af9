"""Batches of files, shared by threads that each process their images in one compiled call.

This is for the plain case: baseline JPEG files in memory, decoded by accel's own decoder, with their stream indexes.
Other files, which the call leaves, are run as single images.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from operator import is_
from time import thread_time
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.backends.cpu import pass_fields as ps
from accel.backends.cpu import passes
from accel.backends.cpu import share_fields as sh
from accel.backends.shared.pixels import Pixels
from accel.codec import jpeg, store, store_fields, stream_index
from accel.codec.jpeg import decode_fields as df
from accel.memo import cached, pace, planes
from accel.native import units
from accel.native.calls import Call
from accel.planning.columns import Columns
from accel.recipe import Source
from accel.runtime import read
from accel.sources import Files
from accel.system.clocks import DECODE, TRANSFORM
from accel.system.compiled_stage import CLOCK, compiled_stage

STEPS = (
    *("backends/cpu/share_steps.py", "backends/cpu/share_fields.py", "backends/cpu/pass_fields.py"),
    "backends/cpu/pass_windows.py",
    *("codec/jpeg/*.py", "codec/header.py", "codec/progressive.py", "planning/column_fields.py"),
    *("native/call_kernels.py", "native/call_fields.py"),
)
"""The source files of all shares' compiled code."""

_SOURCES = (
    *("backends/cpu/share_kernels.py", "backends/cpu/share_bands.py"),
    *("codec/store_kernels.py", "codec/store_fields.py", "files/fields.py"),
)
UNIT = units.Unit("share", *_SOURCES, *STEPS, seconds=1)
_run_share = UNIT.function(
    "backends.cpu.share_kernels",
    "run_share",
    "i8[1]w i8[2] u8[2] i8[2] u1[1] i8[3] u1[1] i8[1]w i8[1]w i8[1]w i8[1]w i8[1] i8[1]w i8[1]w i8[1] u8[1]w i8[2]"
    " i8[1] i8[1]w"
    " u8[1]w i4[2]w u1[1]w any[1]w i8[2] i8[3]w int int int bool",
)

_list_files = UNIT.function(
    "backends.cpu.share_kernels",
    "list_files",
    "i8[2] u1[1] i8[2] u1[1] i8[2] u1[1] int int i8[2]w u8[2]w u1[1]w i8[1]w",
)
_TAKE_BAND = UNIT.function("backends.cpu.share_bands", "take_band", df.TAKE_BAND)
_choose_bands = UNIT.function("backends.cpu.share_bands", "choose_bands", "i8[2] i8[3] u1[1] int int u1[1]w")

_IN_BANDS = 1 << 19
"""Regions of more bytes are decoded in bands: two regions of this size do not fit into a core's own cache."""

Given = tuple[Pixels, npt.NDArray[Any], npt.NDArray[np.float32]]
"""Fill colours, table and factors of a pass."""


class Shared:
    """The images of a batch that are the plain case. ``others``: the places of the other images."""

    def __init__(self, columns: Columns, sources: Sequence[Source], cache: str | None) -> None:
        self.columns, self._sources = columns, sources
        self._files = sources if isinstance(sources, Files) else None
        self.counter = np.zeros(1, np.int64)
        self.bands = bands = in_bands(columns)
        found = _of_sources(columns, sources, bands) if self._files is None else _of_files(columns, self._files, bands)
        if self._files is None or not self._files.untouched:
            self._asked(found.images[:, sh.POSITION].tolist(), 1)
        self.images, self.keys, self._held, self.largest, self.room = found
        if cache is None:
            self.images[:, sh.HAS_KEY] = False
        count = len(columns.boxes)
        self.others: list[int] = []
        if len(self.images) < count:
            self.others = sorted({*range(count)}.difference(self.images[:, sh.POSITION].tolist()))

    def _asked(self, positions: list[int], more: int) -> None:
        """Count images as decoded, or (-1) as not decoded after all."""
        if self._files is not None:
            self._files.ask(positions, more)
            return
        for position in positions:
            self._sources[position].asked += more

    def _regions(self) -> tuple[int, int]:
        """The number of files, and the pixels of their regions (``pace.pixels_of_all``)."""
        positions = self.images[:, sh.POSITION]
        if self._files is None:
            widths = np.array([self._sources[each].header.width for each in positions.tolist()], np.int64)
        else:
            widths = self._files.sizes()[1][positions]
        return len(positions), pace.pixels_of_all(widths, self.columns.boxes[positions])

    def __len__(self) -> int:
        return len(self.images)

    def run(self, given: Given, target: npt.NDArray[Any], planar: bool) -> list[int]:
        """Process images until none is left; return the places of those that are left to Python."""
        columns, item = self.columns, target.dtype.itemsize
        entries = store.current()
        layout, own = (store.NO_STORE, store.NO_STORE.places) if entries is None else (entries.layout, entries.own())
        prepare, decode, header = jpeg.calls(self.largest)
        index, fused = _last.room(self.largest // 400 + 64), pass_call(columns, given, item, planar)
        left, said = np.empty(len(self.images), np.int64), np.zeros(sh.SAID, np.int64)
        said[sh.CURRENT], said[sh.WANTED], said[sh.FULL] = -1, -1, stream_index.is_full()
        windows, (sink, of_sink) = np.empty((2, max(columns.largest)), np.int32), _last.bands()
        pixels, begun = read.room.take(self.room), thread_time() if cached.in_use else 0.0
        with compiled_stage(DECODE, TRANSFORM, len(self.images)) as times:
            while True:
                _run_share(
                    self.counter, self.images, self.keys, columns.boxes, self.bands, columns.axes,
                    columns.rows_first.view(np.uint8), left, said, prepare.words, decode.words, sink.words, of_sink,
                    fused.words, header, *layout, own, index, windows, pixels, target, columns.parts, times, CLOCK,
                    item, columns.channels, planar,
                )  # fmt: skip
                if said[sh.CURRENT] < 0:
                    break
                wanted, size = int(said[sh.WANTED]), int(said[sh.ROOM])
                if wanted == sh.PASS:
                    fused.hold(ps.SCRATCH, passes.larger(size))
                elif wanted == sh.INDEX:
                    index = _last.room(size)
                else:
                    jpeg.grow(decode, "ends" if wanted == sh.ENDS else "planes", size)
        used, dropped, kept, full, crowded = said[sh.USED :].tolist()
        stream_index.counted(used, dropped, kept, bool(full), crowded)
        if cached.in_use:
            took, count = 1e6 * (thread_time() - begun), len(columns.boxes)
            selection = self._sources[0].selection if self._files is None else self._files.selection
            planes.decoded_together(selection, *self._regions(), count, used, int(said[sh.DONE]), took)
        found: list[int] = left[: said[sh.LEFT]].tolist()
        if found:
            self._asked(found, -1)
        return found


def in_bands(columns: Columns) -> npt.NDArray[np.uint8]:
    """The images whose region is decoded in bands, so that it is resampled in near caches: uint8 [images], 0 or 1."""
    found = np.empty(len(columns.boxes), np.uint8)
    order = columns.rows_first.view(np.uint8)
    _choose_bands(columns.boxes, columns.axes, order, columns.channels, _IN_BANDS, found)
    return found


class _Listed(NamedTuple):
    """Images that are the plain case: rows of numbers (``share_fields``) and keys; the objects that keep their files
    alive; the bytes of the largest file, and the most bytes of pixels of a region, or of a band of it."""

    images: npt.NDArray[np.int64]
    keys: npt.NDArray[np.uint64]
    held: Any
    largest: int
    room: int


def _of_files(columns: Columns, files: Files, bands: npt.NDArray[np.uint8]) -> _Listed:
    """List the plain files, and count them as decoded."""
    count, said = len(files), np.empty(sh.LISTED, np.int64)
    which = _BY_STATE if files.untouched and not cached.in_use else read.which_only_decode(files)
    images, keys = np.empty((count, sh.IMAGE), np.int64), np.empty((count, store_fields.KEY), np.uint64)
    given = files.known, which.view(np.uint8), files.places, files.content, columns.boxes, bands, columns.channels
    listed = _list_files(*given, read.LARGEST, images, keys, files.asked.view(np.uint8), said)
    return _Listed(images[:listed], keys[:listed], files.content, *said.tolist())


_BY_STATE = np.empty(0, np.bool_)
"""Empty, in place of ``read.which_only_decode``: each file's state decides."""


def _of_sources(columns: Columns, sources: Sequence[Source], bands: npt.NDArray[np.uint8]) -> _Listed:
    rows, keys, held, largest = [], [], [], 0
    each = columns.boxes[:, 3] * columns.channels
    sizes = np.where(bands, each * ps.BAND + ps.BEHIND, each * columns.boxes[:, 2]).tolist()
    for position, (source, size) in enumerate(zip(sources, sizes, strict=True)):
        if size <= read.LARGEST and read.only_decodes(source):
            file, largest = np.frombuffer(source.data, np.uint8), max(largest, size)
            held.append(file)
            rows.append((position, file.__array_interface__["data"][0], len(file), source.key is not None))
            keys.append(store.NO_ROW if source.key is None else store.row(*source.key))
    table = np.frombuffer(b"".join(keys), np.uint64).reshape(-1, store_fields.KEY)
    images = np.array(rows, np.int64).reshape(-1, sh.IMAGE)
    return _Listed(images, table, held, max(map(len, held), default=0), largest)


def pass_call(columns: Columns, given: Given, item: int, planar: bool) -> Call:
    """The call of the pass for a plan's images, in which compiled code sets the pixels, the axes and the output.

    It is the thread's last one if that was made of the same objects.
    """
    made_of = columns.resample, *given, item, planar
    if _last.call is None or not all(map(is_, made_of, _last.made_of)):
        fills, table, factors = given
        _last.made_of, _last.call = made_of, Call(
            passes.RUN, None, *(0, 1, 0, 0.0, 0.0, 0, None) * 2, columns.resample, False, fills, table, item, factors,
            None, planar, ps.ALL, passes.workspace.memory,
        )  # fmt: skip
    _last.call.hold(ps.SCRATCH, passes.workspace.memory)
    return _last.call


class _Last(threading.local):
    made_of: tuple[Any, ...] = ()
    call: Call | None = None
    index = np.empty(0, np.uint64)
    sink: tuple[Call, npt.NDArray[np.int64]] | None = None

    def bands(self) -> tuple[Call, npt.NDArray[np.int64]]:
        """The call of a sink that hands bands to a pass, and the sink's own words, int64 (``share_fields``)."""
        if self.sink is None:
            own = np.append(np.zeros(sh.CALL, np.int64), Call(passes.TAKE_ROWS, 0, 0).words)
            self.sink = Call(_TAKE_BAND, 0, 0, own), own
        return self.sink

    def room(self, words: int) -> npt.NDArray[np.uint64]:
        """An array of at least ``words`` words for an index."""
        if len(self.index) < words:
            self.index = np.empty(words, np.uint64)
        return self.index


_last = _Last()
