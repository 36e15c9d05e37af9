"""Sources of pixels, and recipes: a source with the steps recorded on it, which is what a lazy image holds."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from accel.codec import foreign
from accel.codec.files import reader
from accel.codec.files.batch_memory import Place
from accel.codec.files.reader import file_buffers
from accel.codec.header import Header, Raw
from accel.errors import DecodeError
from accel.recipes.options import Selection
from accel.system.memory import Key

Step = tuple[str, tuple[Any, ...]]
"""An op's name in the table (``accel.ops``) and its parameters."""


class Encoded(NamedTuple):
    """A file's bytes in place of its path (``Source.path``): the pixels are decoded from them on first use."""

    data: bytes


class Recording(threading.local):
    """How this thread records images now, for ``accel.stats()``.

    Attributes:
        way: of images that are opened now. by_batch: whether that stays their way when a composition records them.
    """

    way = "alone, function by function"
    by_batch = False

    @contextmanager
    def batch(self, way: str, by_batch: bool) -> Iterator[None]:
        """Set both for the block."""
        before = self.way, self.by_batch
        self.way, self.by_batch = way, by_batch
        try:
            yield
        finally:
            self.way, self.by_batch = before


recording = Recording()


class Source:
    """The encoded bytes of one file with a header that accel claims, or raw pixels.

    Shared by every image made from it, never changed; copying it returns itself.

    Attributes:
        data: the whole file, or the pixels; if there is a ``path``, read on first access.
        name: the name in messages. selection: the backend that runs the images made from it.
        origin: the recipe of pixels that are lazy themselves (values that became an image again), ``data`` is empty
            then; None for others.
        key: the key of the file, or of the content in memory, that ``data`` is all of; None if no key can be trusted.
        uses: how often it was decoded or looked up. shared: whether several images were recorded from it.
        picture: its decoded pixels, where they are kept (``accel.runtime.picture_memory``).
        path: of a file that was not read, or the bytes (``Encoded``) of one that was not decoded; None for others.
        cached: what the cache knows of that file (``runtime.memo.cached``); None: nothing.
        buffer: the memory that ``data`` is a view of, which is used for other files when the source is gone.
        way: how the images made from it are recorded, for ``accel.stats()``.
    """

    __slots__ = (
        *("data", "header", "name", "selection", "origin", "key", "uses", "shared", "picture", "buffer"),
        *("path", "cached", "way", "__weakref__"),
    )

    def __init__(
        self,
        data: bytes | memoryview | None,
        header: Header | Raw,
        name: str,
        selection: Selection,
        buffer: bytes | bytearray | Place | None = None,
        origin: Recipe | None = None,
        key: Key | None = None,
        path: Any = None,
        cached: Any = None,
    ) -> None:
        """``data``: None if the file was not read."""
        if data is not None:
            self.data = data
        self.header, self.name, self.selection = header, name, selection
        self.origin, self.key, self.buffer = origin, key, buffer
        self.uses, self.shared = 0, False
        self.picture = self.path = self.cached = None
        self.way = recording.way
        if path is not None:
            self.path, self.cached = path, cached

    data: bytes | memoryview
    picture: Any
    path: Any
    cached: Any

    def __getattr__(self, name: str) -> Any:
        # only reached for attributes that are not set yet
        if name != "data":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.data = data = self._read()
        return data

    @property
    def is_read(self) -> bool:
        return self.path is None

    def _read(self) -> bytes | memoryview:
        file = self.file()
        if isinstance(self.header, Header):
            return file
        try:
            return foreign.pixels(file, self.header)
        except DecodeError as error:
            raise DecodeError(f"{self.name}: {error}") from error

    def file(self) -> bytes | memoryview:
        """Read the file, which must not have changed since it was opened.

        Raises:
            DecodeError: the file cannot be read, or has changed.
        """
        if isinstance(self.path, Encoded):
            return self.path.data
        read = reader.read(self.path)
        if read is None:
            raise DecodeError(f"{self.name}: the file, of which a cache has a part, cannot be read any more")
        buffer, size, key, _ = read
        if key != self.key:
            raise DecodeError(f"{self.name}: the file was changed after it was opened")
        if isinstance(self.header, Raw):
            return memoryview(buffer)[:size]
        self.buffer = buffer
        return memoryview(buffer)[:size].toreadonly()

    def leave(self) -> None:
        """Copy the bytes out of the memory of its batch, because somebody keeps the source longer."""
        self.data, self.buffer = bytes(self.data), None

    def __del__(self, give_back: Callable[[Any], None] = file_buffers.give_back) -> None:
        if self.buffer is not None and isinstance(self.data, memoryview):
            try:
                self.data.release()
            except BufferError:  # another view of it is in use
                return
            give_back(self.buffer)

    def __reduce__(self) -> tuple[Any, ...]:
        data = bytes(self.data) if self.is_read else None
        arguments = data, self.header, self.name, self.selection, None, self.origin, self.key, self.path
        return Source, arguments, (None, {"way": self.way})

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Source:
        return self

    __copy__ = __deepcopy__

    def __repr__(self) -> str:
        kind = "pixels" if isinstance(self.header, Raw) else "JPEG"
        return f"<{self.name}: {kind} {self.header.width}x{self.header.height} {self.header.mode}>"


class Recipe(NamedTuple):
    """One lazy image: its source, and the steps in the order in which they were recorded."""

    source: Source
    steps: tuple[Step, ...] = ()


class Branch(NamedTuple):
    """The steps of a second image of the same source, as a parameter of a step that mixes the two."""

    steps: tuple[Step, ...]


def selection_of(recipes: Sequence[Recipe]) -> Selection:
    """The selection of the images, which is the same for all images of a batch."""
    known: Selection | None = getattr(recipes, "selection", None)  # of rows: indexing them would make a recipe
    return recipes[0].source.selection if known is None else known


def ways_of(recipes: Sequence[Recipe]) -> Mapping[str, int]:
    """How many images were recorded in which way (``Source.way``), which is the same for files read together."""
    rows: Any = getattr(recipes, "ahead", None) or getattr(recipes, "sources", None)
    if rows is None:
        return Counter([source.way for source, _ in recipes])
    way = getattr(rows, "way", None)
    return Counter([source.way for source in rows]) if way is None else {way: len(recipes)}
