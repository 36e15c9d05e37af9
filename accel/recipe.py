"""A source of pixels and the steps recorded on it, which a lazy image is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from accel.codec import foreign
from accel.codec.file_buffers import file_buffers
from accel.codec.header import Header, Raw
from accel.errors import DecodeError
from accel.options import Selection
from accel.system.memory import Key

Step = tuple[str, tuple[Any, ...]]
"""An op's name in the table (``accel.ops``) and its parameters."""


class Encoded(NamedTuple):
    """A file's bytes in the place of its path, of pixels that are to be decoded when they are asked for."""

    data: bytes


class Source:
    """The encoded bytes of one file with a header that accel claims, or raw pixels.

    Shared by every image made from it, never changed; copying it returns itself.

    Attributes:
        data: the whole file, or the pixels; of one with a ``path``, read when it is first asked for.
        header: their size and mode, and how they are encoded.
        name: what to call them in messages. selection: the backend that runs the images made from it.
        origin: of pixels that are lazy themselves (values that became an image again), what they are made of;
            ``data`` is empty then.
        key: of the file that ``data`` is all of; None where there is none, or it cannot be trusted.
        asked: how often it was decoded, or looked up. shared: whether several images were recorded from the file's.
        picture: its decoded pixels, where they are kept (``accel.runtime.kept``).
        path: where the file is, of one that was not read, or its bytes (``Encoded``), of one not decoded. cached: what
            is known of it all the same, from one that was (``accel.runtime.cached``); None: nothing.
    """

    __slots__ = (
        *(
            "data",
            "header",
            "name",
            "selection",
            "origin",
            "key",
            "asked",
            "shared",
            "picture",
            "_buffer",
            "path",
            "cached",
        ),
        "__weakref__",
    )

    def __init__(
        self,
        data: bytes | memoryview | None,
        header: Header | Raw,
        name: str,
        selection: Selection,
        buffer: bytes | bytearray | None = None,
        origin: Recipe | None = None,
        key: Key | None = None,
        path: Any = None,
        cached: Any = None,
    ) -> None:
        """``data``: None where the file was not read. ``buffer``: what ``data`` looks at, to be used for other files
        when the source is gone."""
        if data is not None:
            self.data = data
        self.header, self.name, self.selection = header, name, selection
        self.origin, self.key, self._buffer = origin, key, buffer
        self.asked, self.shared = 0, False
        self.picture = self.path = self.cached = None
        if path is not None:
            self.path, self.cached = path, cached

    data: bytes | memoryview
    picture: Any
    path: Any
    cached: Any

    def __getattr__(self, name: str) -> Any:
        # only reached for what is not there yet
        if name != "data":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.data = data = self._read()
        return data

    @property
    def is_read(self) -> bool:
        """Whether its bytes are at hand."""
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
        """The bytes of the file, which must be those of the one that is known.

        Raises:
            DecodeError: the file cannot be read, or is another one now.
        """
        if isinstance(self.path, Encoded):
            return self.path.data
        read = file_buffers.read(self.path)
        if read is None:
            raise DecodeError(f"{self.name}: the file, of which a cache has a part, cannot be read any more")
        buffer, size, key = read
        if key != self.key:
            raise DecodeError(f"{self.name}: the file was changed after it was opened")
        if isinstance(self.header, Raw):
            return memoryview(buffer)[:size]
        self._buffer = buffer
        return memoryview(buffer)[:size].toreadonly()

    def __del__(self, give_back: Callable[[bytes | bytearray], None] = file_buffers.give_back) -> None:
        if self._buffer is not None and isinstance(self.data, memoryview):
            try:
                self.data.release()
            except BufferError:  # somebody still looks at it
                return
            give_back(self._buffer)

    def __reduce__(self) -> tuple[Any, ...]:
        data = bytes(self.data) if self.is_read else None
        return Source, (data, self.header, self.name, self.selection, None, self.origin, self.key, self.path)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Source:
        return self

    __copy__ = __deepcopy__

    def __repr__(self) -> str:
        kind = "pixels" if isinstance(self.header, Raw) else "JPEG"
        return f"<{self.name}: {kind} {self.header.width}x{self.header.height} {self.header.mode}>"


class Recipe(NamedTuple):
    """One lazy image: its source, and the steps in the order in which they were recorded (``accel.planning.order``)."""

    source: Source
    steps: tuple[Step, ...] = ()


class Branch(NamedTuple):
    """Another image made of the same source, as a parameter of a step that mixes the two."""

    steps: tuple[Step, ...]


def selection_of(recipes: Sequence[Recipe]) -> Selection:
    """The selection of the images, which is one for all that are stacked."""
    known: Selection | None = getattr(recipes, "selection", None)  # of rows, which make a recipe when it is asked for
    return recipes[0].source.selection if known is None else known
