"""Many sources in one piece of memory; a ``Source`` is made of one on access."""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from accel.codec.files import fields as of
from accel.codec.files import reader
from accel.codec.files.batch_memory import BatchMemory, Place
from accel.codec.header import Header, Raw, channels_of
from accel.codec.store import Keys
from accel.codec.store import row as row_of_key
from accel.recipes.options import Selection
from accel.recipes.recipe import Source
from accel.system.memory import Key

Numbers = npt.NDArray[np.int64]
"""int64 [images, columns], C-contiguous."""

Names = Sequence[str] | npt.NDArray[np.uint8]
"""File names, as strings or ``encoded``."""

Sizes = tuple[Numbers, Numbers, npt.NDArray[np.bool_]]
"""Heights, widths, and whether pictures are of mode "RGB": arrays [images]."""


TOGETHER = "drawn together"


class Sources(Sequence[Source]):
    """A sequence of distinct sources, none of which is made of pixels that are lazy themselves.

    Attributes:
        selection: the backend that runs them. way: how their images were recorded (``Source.way``).
    """

    __slots__ = ("_made", "selection", "way")

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self.way = TOGETHER
        self._made: dict[int, Source] = {}

    @overload
    def __getitem__(self, place: int) -> Source: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Source]: ...
    def __getitem__(self, place: int | slice) -> Source | Sequence[Source]:
        if isinstance(place, slice):
            return self._several(place)
        place = range(len(self))[place]
        if (made := self._made.get(place)) is None:
            made = self._unread(place) or self._one(place)
            made.way = self.way
            made = self._made.setdefault(place, made)
        return made

    def _unread(self, place: int) -> Source | None:
        """Make the source at this place if it is a file that was not read; else None."""

    def _one(self, place: int) -> Source:
        raise NotImplementedError

    def _several(self, places: slice) -> Sequence[Source]:
        return [self[each] for each in range(len(self))[places]]

    def table(self) -> Numbers:
        """An int64 table [pictures, n]: the last three columns are the components (3 if the mode is "RGB", else 1), the
        height and the width."""
        raise NotImplementedError

    def sizes(self) -> Sizes:
        return sizes_of(self.table())


def sizes_of(table: Numbers) -> Sizes:
    """The heights, the widths, and whether the mode is "RGB", from a ``Sources.table``."""
    return table[:, -2], table[:, -1], table[:, -3] == COLOURED


def table_of(headers: Iterable[Header | Raw]) -> Numbers:
    """The table (``Sources.table``) of pictures with these headers: int64 [pictures, 3]."""
    found = [(each.channels, each.height, each.width) for each in headers]
    return np.array(found, np.int64).reshape(-1, 3)


COLOURED = 3
"""The components of a picture of mode "RGB"."""


class PicturesApart(Sources):
    """Pixels of many images of any sizes in one piece of memory.

    Attributes:
        pixels: uint8, C-contiguous, not to be changed. mode: the mode of all images. name: the name in messages.
        parts: int64 [images, 3], each image's offset, height and width.
    """

    __slots__ = ("mode", "name", "parts", "pixels")

    def __init__(
        self, pixels: npt.NDArray[np.uint8], parts: Numbers, mode: str, name: str, selection: Selection
    ) -> None:
        super().__init__(selection)
        self.pixels, self.parts, self.mode, self.name = pixels, parts, mode, name

    def __len__(self) -> int:
        return len(self.parts)

    def _one(self, place: int) -> Source:
        begin, height, width = self.parts[place].tolist()
        own = self.pixels.reshape(-1)[begin : begin + height * width * channels_of(self.mode)]
        return Source(own.data.toreadonly(), Raw(width, height, self.mode), self.name, self.selection)

    def table(self) -> Numbers:
        table = self.parts.copy()
        table[:, 0] = channels_of(self.mode)
        return table

    def __reduce__(self) -> tuple[Any, ...]:
        return PicturesApart, (self.pixels, self.parts, self.mode, self.name, self.selection)


class Pictures(PicturesApart):
    """Pixels of many images of one size in one array.

    Attributes:
        pixels: uint8 [images, height, width] (grey) or [images, height, width, 3], C-contiguous; not to be changed.
    """

    __slots__ = ()

    def __init__(self, pixels: npt.NDArray[np.uint8], name: str, selection: Selection) -> None:
        count, height, width, *channels = pixels.shape
        if pixels.dtype != np.uint8 or not pixels.flags.c_contiguous or channels not in ([], [3]):
            raise ValueError(f"pictures are no {pixels.dtype} array of shape {pixels.shape}")
        parts = np.empty((count, 3), np.int64)
        parts[:, 0], parts[:, 1:] = np.arange(count) * math.prod(pixels.shape[1:]), (height, width)
        super().__init__(pixels, parts, "RGB" if channels else "L", name, selection)

    def _several(self, places: slice) -> Pictures:
        return Pictures(np.ascontiguousarray(self.pixels[places]), self.name, self.selection)

    def __reduce__(self) -> tuple[Any, ...]:
        return Pictures, (self.pixels, self.name, self.selection)


class Files(Sources):
    """Distinct files in one piece of memory.

    Attributes:
        content: uint8 [bytes], not to be changed. places: int64 [files, 2], each file's offset and size.
        known: int64 [files, FIELDS], the fields of ``codec.files.fields``; the size of the picture is always set.
        headers: the headers of files that are not ``PLAIN``, by their numbers. names: the names of all files.
        asked: bool [files], whether a file was decoded, as ``Source.uses``. memory: what ``content`` is a part of, if
            it is reused for other batches.
        cached: by the numbers of files that were not read: their paths, and what a cache has of them (``Source``).
    """

    __slots__ = ("__weakref__", "_split", "cached", "content", "headers", "known", "memory", "names", "places", "uses")

    def __init__(
        self,
        content: npt.NDArray[np.uint8],
        places: Numbers,
        known: Numbers,
        headers: Mapping[int, Header],
        names: Names,
        selection: Selection,
        memory: BatchMemory | None = None,
    ) -> None:
        super().__init__(selection)
        self.content, self.places, self.known, self.headers, self.names = content, places, known, headers, names
        self.memory = memory
        self.uses = np.zeros(len(places), np.bool_)
        self.cached: Mapping[int, tuple[Any, Any]] = {}
        self._split: Sequence[str] = () if isinstance(names, np.ndarray) else names

    @classmethod
    def of(cls, sources: Sequence[Source]) -> Files | None:
        """Sources that were read one by one into the memory of one batch (``Place``); None for others."""
        at = [source.buffer for source in sources if type(source.buffer) is Place]
        if not at or len(at) < len(sources) or len(set(map(id, sources))) < len(sources):
            return None
        memory, first = at[0].memory, sources[0]
        for place, source in zip(at, sources, strict=True):
            alike = place.memory is memory and source.way == first.way and source.selection == first.selection
            if not alike or source.cached is not None or "\0" in source.name:
                return None
        known = np.array([place.row for place in at], np.int64)
        places = np.stack([np.array([place.start for place in at], np.int64), known[:, of.READ]], 1)
        headers: Any = {n: each.header for n, each in enumerate(sources) if at[n].row[of.STATE] != of.PLAIN}
        names = [source.name for source in sources]
        files = cls(memory.kept(), places, known, headers, names, first.selection, memory)
        files.way, files._made = first.way, dict(enumerate(sources))
        return files

    def __len__(self) -> int:
        return len(self.places)

    def made(self) -> list[tuple[int, Source]]:
        """The (place, source) pairs of sources that were made on access or that are not read."""
        for place in self.cached.keys() - self._made.keys():
            if (source := self._unread(place)) is not None:
                source.way = self.way
                self._made.setdefault(place, source)
        return [*self._made.items()]

    def of_cache(self) -> list[Any]:
        """What a cache has of each file (``Source.cached``), without making sources."""
        found: list[Any] = [None] * len(self)
        for place, (_, known) in self.cached.items():
            found[place] = known
        for place, source in self._made.items():
            found[place] = source.cached
        return found

    def ask(self, places: Sequence[int], more: int) -> None:
        """Note that the files at these places are decoded (``more`` 1), or that they were not after all (-1)."""
        self.uses[places] = more > 0
        if self._made:
            for place in self._made.keys() & places:
                self._made[place].uses += more

    def take(self, places: Sequence[int], numbers: Sequence[int], others: Files) -> None:
        """Move the files to these places, and put ``others``, which were not read, at theirs, ``numbers``.

        A file of both was read; but as a cache has something of it, it is used as one that was not.
        """
        self.cached = {number: others.cached[place] for place, number in enumerate(numbers)}
        count = len({*places, *numbers})
        if count == len(self):
            return
        known, begins = np.zeros((count, of.FIELDS), np.int64), np.zeros((count, 2), np.int64)
        known[places], begins[places], known[numbers] = self.known, self.places, others.known
        names = dict(zip([*places, *numbers], [*self._split, *others._split], strict=True))
        self.known, self.places = known, begins
        self.headers = {places[number]: header for number, header in self.headers.items()}
        self.names = self._split = [names[place] for place in range(count)]
        self.uses = np.zeros(count, np.bool_)
        self._made = {places[number]: source for number, source in self._made.items()}

    def _unread(self, place: int) -> Source | None:
        if place not in self.cached:
            return None
        (path, known), key = self.cached[place], reader.key(self.known[place].tolist())
        return Source(None, known.header, self._split[place], self.selection, key=key, path=path, cached=known)

    def _one(self, place: int) -> Source:
        self._split = self._split or bytes(self.names).decode(*_ENCODING).split("\0")  # type: ignore[arg-type]
        row = self.known[place].tolist()
        start, size = self.places[place].tolist()
        data = self.content[start : start + size].data.toreadonly()
        header = self.headers.get(place) or reader.plain_header(row)
        source = Source(data, header, self._split[place], self.selection, key=reader.key(row))
        source.uses = int(self.uses[place])
        if self.memory is not None:
            self.memory.sources.append(weakref.ref(source))
        return source

    def table(self) -> Numbers:
        return self.known

    def plain(self) -> npt.NDArray[np.bool_]:
        """Whether each file is ``Header.plain``, bool [files]."""
        found: npt.NDArray[np.bool_] = self.known[:, of.STATE] == of.PLAIN
        for place, header in self.headers.items():
            found[place] = header.plain
        return found

    def key(self, place: int) -> Key | None:
        return reader.key(self.known[place].tolist())

    def keys(self) -> Keys:
        rows = np.ascontiguousarray(self.known[:, of.DEVICE : of.CHANGED + 1]).view(np.uint64)
        return Keys(rows, self.known[:, of.WRITTEN] >= 0)

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (list(self),)


def name_of(path: Any) -> str:
    """The name of a file in messages."""
    return os.fsdecode(path) if isinstance(path, bytes) else str(path)


def encoded(names: Names) -> npt.NDArray[np.uint8]:
    """Names in one array of bytes, separated by zeros."""
    return names if isinstance(names, np.ndarray) else np.frombuffer("\0".join(names).encode(*_ENCODING), np.uint8)


_ENCODING = "utf-8", "surrogatepass"


_SIGNED = Struct("=5q")


def known_of(source: Source, header: Header) -> list[int]:
    """The row of ``Files.known`` for a source."""
    key = _SIGNED.unpack(row_of_key(*(source.key or (0, 0, 0, -1, -1))))
    row = [of.PLAIN, len(source.data), *key]
    reader.put_header(row, header)
    if reader.plain_header(row) != header:
        row[of.STATE] = of.OTHER
    return row
