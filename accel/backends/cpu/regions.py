"""Where threads that share a batch read regions: from files, from pictures, or from a cache's planes or results.

What the compiled reader declines is run as single images: files that are not the plain case (baseline JPEG files in
memory, decoded by accel's own decoder, with their stream indexes), and entries that are damaged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from accel.backends.cpu import share_fields as sh
from accel.cache import reading
from accel.cache import reading_fields as rd
from accel.codec import jpeg, store, store_fields, stream_index
from accel.codec.files import fields as of
from accel.codec.jpeg import decode_fields as df
from accel.codec.jpeg import planes as jpeg_planes
from accel.codec.jpeg import planes_fields as pf
from accel.planning.column_fields import START
from accel.planning.columns import Columns
from accel.recipes.recipe import Source
from accel.recipes.rows import Numbers
from accel.recipes.sources import Files, PicturesApart
from accel.runtime import read
from accel.runtime.memo import cached, pace, planes
from accel.runtime.memo.result_pixels import StoredResults
from accel.system.memory import Scratch
from accel.system.native import units
from accel.system.native.calls import Call

UNIT = units.Unit(
    "share",
    *("backends/cpu/share_kernels.py", "backends/cpu/share_fields.py"),
    *("backends/cpu/pass_fields.py", "backends/shared/numba_memory.py"),
    *("cache/reading_fields.py", "codec/store_kernels.py", "codec/store_fields.py", "codec/files/fields.py"),
    *("codec/jpeg/*.py", "codec/header.py", "planning/column_fields.py"),
    *(f"system/native/{name}.py" for name in ("call_kernels", "digest", "memory", "signatures", "simd")),
    seconds=1.5,
)
RUN_SHARE = UNIT.function("backends.cpu.share_kernels", "run_share", "i8[1]w i8[1]w i8[1]w")
TAKE_BAND = UNIT.function("backends.cpu.share_kernels", "take_band", df.TAKE_BAND)
_READ_FILE = UNIT.function("backends.cpu.share_kernels", "read_file", sh.READER)
_READ_PICTURE = UNIT.function("backends.cpu.share_kernels", "read_picture", sh.READER)
_READ_PLANES = UNIT.function("backends.cpu.share_kernels", "read_planes", sh.READER)
_READ_RESULT = UNIT.function("backends.cpu.share_kernels", "read_result", sh.READER)
_LIST_FILES = "u1[1] i8[2] i8[2] i8[3] u1[1] int i8[1] i8[2]w i8[1]w i8[1]w"
_list_files = UNIT.function("backends.cpu.share_kernels", "list_files", _LIST_FILES)

_limits = np.array((1 << 19, read.LARGEST))
"""Regions of more bytes than the first are decoded in bands, as two of this size do not fit into a core's own cache;
those of more than the second are not listed."""


Fields = dict[int, Any]
"""Numbers, arrays and ``Call`` objects by their fields in a block (``share_fields``)."""


class Block:
    """A call block, which keeps its arrays and calls alive. ``words``: int64 [WORDS], memory for it."""

    def __init__(self, words: npt.NDArray[np.int64], values: Fields) -> None:
        words[:] = 0
        self.words, self.values = words, dict[int, Any]()
        self.fill(values)

    def fill(self, values: Fields) -> None:
        """Set these fields."""
        for field, value in values.items():
            if type(value) is np.ndarray:
                if not value.flags.c_contiguous:
                    raise ValueError(f"compiled code takes contiguous arrays, not one of strides {value.strides}")
                self.words[field] = id(value)
            else:
                self.words[field] = id(value.words) if isinstance(value, Call) else value
        self.values |= values


class Regions(ABC):
    """The regions of a batch's images that threads read in compiled calls.

    Attributes:
        reader: the compiled function that reads one (``share_fields.READER``).
        positions: int64 [n], the places of these images in the batch. others: those of the other images.
        boxes, axes: as in ``Columns``, for the pixels that are read.
        room: the most bytes of a region's pixels in memory.
        decodes: whether reading is the stage "decode". least: the fewest images for which a thread is woken.
    """

    reader: units.Function
    positions: Numbers
    others: Sequence[int]
    boxes: Numbers
    axes: Numbers
    room: int
    decodes = True
    least = 1

    @abstractmethod
    def fields(self, pixels: npt.NDArray[np.uint8]) -> Fields:
        """The fields of a thread's block that the reader uses. ``pixels``: memory for a region."""

    def grow(self, block: Block, memory: int, size: int) -> None:
        """Give a thread's block ``size`` items of a kind of working memory (``share_fields``)."""
        raise NotImplementedError

    @abstractmethod
    def finish(self, block: Block, left: list[int], took: float) -> None:
        """Count a thread's images; it leaves those with the places ``left``. ``took``: the microseconds."""


# -- files ----------------------------------------------------------------------------------------------------


class FileRegions(Regions):
    """Regions of the files that are the plain case, which count as decoded from the beginning.

    Attributes:
        regions: int64 [images, REGION] (``share_fields``).
    """

    reader = _READ_FILE

    def __init__(self, columns: Columns, sources: Sequence[Source], cache: str | None) -> None:
        """``cache``: None if no indexes are used."""
        self._sources, self._cache, self.boxes, self.axes = sources, cache, columns.boxes, columns.axes
        if isinstance(sources, Files):
            plain = read.which_only_decode(sources)
            self._known, self._files, self._content = sources.known, sources.places, sources.content
        else:
            plain = np.array([*map(read.only_decodes, sources)])
            self._take(sources, plain)
        count, found = len(sources), np.empty(2, np.int64)
        self.regions, positions = np.empty((count, sh.REGION), np.int64), np.empty(count, np.int64)
        given = columns.boxes, columns.axes, columns.rows_first.view(np.uint8), columns.channels, _limits
        number = _list_files(plain.view(np.uint8), self._files, *given, self.regions, positions, found)
        self.positions = positions[:number]
        self._largest, self.room = found.tolist()
        self.others = [] if number == count else sorted({*range(count)}.difference(self.positions.tolist()))
        self._ask(self.positions, 1)

    def _take(self, sources: Sequence[Source], plain: npt.NDArray[np.bool_]) -> None:
        """Take the content and the keys of the sources that are plain."""
        pairs = [*zip(sources, plain.tolist(), strict=True)]
        self._contents = [np.frombuffer(source.data if is_plain else b"", np.uint8) for source, is_plain in pairs]
        self._files = np.array([(_address(data) - _address(_NOTHING), len(data)) for data in self._contents], np.int64)
        keys = b"".join([store.row(*(source.key or _NO_KEY)) for source, _ in pairs])
        self._known = np.zeros((len(sources), of.FIELDS), np.int64)
        self._known[:, of.DEVICE : of.CHANGED + 1] = np.frombuffer(keys, np.int64).reshape(-1, store_fields.KEY)
        self._content = _NOTHING

    def _ask(self, positions: Any, more: int) -> None:
        """Count files as decoded, or (-1) as not decoded after all."""
        if isinstance(self._sources, Files):
            self._sources.ask(positions, more)
            return
        for position in positions:
            self._sources[position].uses += more

    def fields(self, pixels: npt.NDArray[np.uint8]) -> Fields:
        entries = None if self._cache is None else store.current()
        layout, own = (store.NO_STORE, store.NO_STORE.places) if entries is None else (entries.layout, entries.own())
        prepare, decode, header = jpeg.calls(self._largest)
        return {
            sh.KNOWN: self._known,
            sh.FILES: self._files,
            sh.CONTENT: self._content,
            sh.REGIONS: self.regions,
            sh.PREPARE: prepare,
            sh.DECODE: decode,
            sh.HEADER: header,
            sh.STORE: layout.words,
            sh.LEVELS: layout.levels,
            sh.PLACES: layout.places,
            sh.OWN: own,
            sh.OF_INDEX: _index.take(8 * (self._largest // 400 + 64)).view(np.uint64),
            sh.FULL: stream_index.is_full(),
        }

    def grow(self, block: Block, memory: int, size: int) -> None:
        if memory == sh.INDEX:
            block.fill({sh.OF_INDEX: _index.take(8 * size).view(np.uint64)})
        else:
            jpeg.grow(block.values[sh.DECODE], "ends" if memory == sh.ENDS else "planes", size)

    def finish(self, block: Block, left: list[int], took: float) -> None:
        used, dropped, kept, full, crowded = block.words[sh.USED : sh.CROWDED + 1].tolist()
        stream_index.counted(used, dropped, kept, bool(full), crowded)
        if cached.in_use:
            sources, positions = self._sources, self.positions
            if isinstance(sources, Files):
                selection, widths = sources.selection, sources.sizes()[1][positions]
            else:
                selection = sources[0].selection
                widths = np.array([sources[each].header.width for each in positions.tolist()], np.int64)
            pixels, done = pace.pixels_of_all(widths, self.boxes[positions]), int(block.words[sh.COUNT_DONE])
            planes.add_decodes(selection, len(positions), pixels, len(sources), used, done, took)
        if left:
            self._ask(left, -1)


def _address(array: npt.NDArray[np.uint8]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


_NOTHING = np.empty(0, np.uint8)
_NO_KEY = 0, 0, 0, -1, -1
_index = Scratch()


# -- pictures -------------------------------------------------------------------------------------------------


class PictureRegions(Regions):
    """Whole pictures that lie in one array."""

    reader = _READ_PICTURE
    decodes, least, room = False, 16, 0

    def __init__(self, columns: Columns, pictures: PicturesApart) -> None:
        self._pictures, self.boxes, self.axes = pictures, np.zeros_like(columns.boxes), columns.axes.copy()
        self.boxes[:, 2:] = pictures.parts[:, 1:]
        self.axes[..., START] += columns.boxes[:, :2].T
        self.positions, self.others = np.arange(len(pictures)), ()

    def fields(self, pixels: npt.NDArray[np.uint8]) -> Fields:
        return {sh.FILES: self._pictures.parts, sh.CONTENT: self._pictures.pixels.reshape(-1)}

    def finish(self, block: Block, left: list[int], took: float) -> None:
        """Count nothing: pictures are not decoded."""


# -- entries of a cache -----------------------------------------------------------------------------------------


class PlaneRegions(Regions):
    """Regions of the files that a cache has half-decoded."""

    reader = _READ_PLANES

    def __init__(self, columns: Columns, sources: Sequence[Source]) -> None:
        sizes = columns.boxes[:, 2] * columns.boxes[:, 3] * columns.channels
        small, looked = sizes <= read.LARGEST, sources.made() if isinstance(sources, Files) else enumerate(sources)
        here = {place: source for place, source in sorted(looked) if small[place] and planes.has(source)}
        found = planes.together([*here.values()]) if here else None
        if found is None:
            here.clear()
        self._found, self.boxes, self.axes = found, columns.boxes, columns.axes
        self.others = [position for position in range(len(sources)) if position not in here]
        self.positions = np.array([*here], np.int64)
        self._sources = [*here.values()]
        self.room = int(sizes[self.positions].max(initial=0))

    def fields(self, pixels: npt.NDArray[np.uint8]) -> Fields:
        assert self._found is not None
        _, largest, descriptions, rows, numbers, begins = self._found
        parts = _parts.take(largest)
        needed, unpack, span = jpeg_planes.calls(parts)
        return {
            sh.READ: reading.call(parts),
            sh.ROWS: rows,
            sh.NUMBERS: numbers,
            sh.BEGINS: begins,
            sh.DESCRIPTIONS: descriptions,
            sh.NEEDED: needed,
            sh.UNPACK: unpack,
            sh.SPAN: span,
        }

    def grow(self, block: Block, memory: int, size: int) -> None:
        block.values[sh.UNPACK].hold(pf.PLANES, jpeg.room("planes", size))

    def finish(self, block: Block, left: list[int], took: float) -> None:
        widths = np.array([source.header.width for source in self._sources], np.int64)
        pixels = pace.pixels_of_all(widths, self.boxes[self.positions])
        planes.add_hits(self._sources, pixels, len(self.boxes), int(block.words[sh.COUNT_DONE]), took)


_parts = Scratch()


class ResultRegions(Regions):
    """Bands of rows of results that a cache has: of all images of a batch, or of none if compiled code cannot read
    them."""

    reader = _READ_RESULT
    decodes = False

    def __init__(self, columns: Columns, results: StoredResults) -> None:
        self._results, self.boxes, self.axes = results, columns.boxes.copy(), columns.axes.copy()
        self._entries = results.entry_table()
        there = self._entries is not None and self._show_bands(columns, self._entries)
        self.positions = np.arange(len(results) if there else 0, dtype=np.int64)
        self.others = range(0 if there else len(results))
        self.room = int((self.boxes[:, 2] * self.boxes[:, 3]).max()) * columns.channels

    def _show_bands(self, columns: Columns, entries: reading.EntryTable) -> bool:
        """Have the bands read that hold the rows of each box; False if an entry's bands are not as expected."""
        _, rows, numbers, begins = entries
        heights, widths, _ = self._results.sizes()
        row, counts = widths * columns.channels, rows[:, rd.COUNT]
        ends = begins + 2 * counts  # the places of the parts' ends
        each = np.maximum(numbers[ends] // row, 1)
        top, left, shown, _ = columns.boxes.T
        rows[:, rd.BEGIN], rows[:, rd.END] = top // each, np.minimum(-(-(top + shown) // each), counts)
        first, last = rows[:, rd.BEGIN], rows[:, rd.END]
        begin, end = first * each, np.minimum(last * each, heights)
        if (numbers[ends + last - 1] != end * row).any() or (numbers[ends + first - 1] != begin * row)[first > 0].any():
            return False
        self.axes[0, :, START] += top - begin
        self.axes[1, :, START] += left
        self.boxes[:] = np.stack((begin, np.zeros_like(begin), end - begin, widths), axis=1)
        return True

    def fields(self, pixels: npt.NDArray[np.uint8]) -> Fields:
        assert self._entries is not None
        _, rows, numbers, begins = self._entries
        return {sh.READ: reading.call(pixels), sh.ROWS: rows, sh.NUMBERS: numbers, sh.BEGINS: begins}

    def finish(self, block: Block, left: list[int], took: float) -> None:
        self._results.add_hits(int(block.words[sh.COUNT_DONE]))
