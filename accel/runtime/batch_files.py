"""The files of a batch, read behind one another into one piece of memory; an object is made for a file only when it is
asked for."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from accel.codec import opening
from accel.codec import opening_fields as of
from accel.codec.header import Header
from accel.codec.opening import File
from accel.options import Selection
from accel.recipe import Source
from accel.sources import Files, Numbers
from accel.system import memory

ALIGNED = 64
"""The alignment of files in memory, in bytes."""

Claimed = Callable[[File], "Header | None"]
"""Returns the header of a file; None for one that accel does not claim."""

F = TypeVar("F", bound=Files)

_PATIENCE = 4  # batches after which a source that outlives its batch gets its own copy of its bytes
_LARGEST = 1 << 26  # bytes of a file; larger ones, whose size may be false and exceed memory, are read one by one
_LEAST = 1 << 21  # bytes of room: a huge page, into which copying a small file takes three quarters of the time
_each = 0.0  # the expected bytes of a file


class ReadFiles(Files):
    """Files in memory that later batches reuse.

    Attributes:
        looked: the sources that were made of them.
    """

    __slots__ = ("looked",)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.looked: list[weakref.ref[Source]] = []

    def _one(self, place: int) -> Source:
        source = super()._one(place)
        self.looked.append(weakref.ref(source))
        return source


class _Before(threading.local):
    """The batches that a thread has read last, if they are still alive, and the sources made of their files."""

    def __init__(self) -> None:
        self._batches: deque[tuple[weakref.ref[ReadFiles], list[weakref.ref[Source]]]] = deque()

    def add(self, files: ReadFiles) -> None:
        """Add a batch. Sources that outlive an earlier batch get copies of their bytes: a single one would keep the
        memory of all."""
        self._batches.append((weakref.ref(files), files.looked))
        if len(self._batches) > _PATIENCE:
            batch, looked = self._batches.popleft()
            for each in looked if batch() is None else ():
                if (source := each()) is not None:
                    source.data = bytes(source.data)


_before = _Before()


def read(paths: Sequence[Any], selection: Selection, most: int, claimed: Claimed) -> Sequence[Source | None] | None:
    """Read files into memory that is reused once nobody refers to any of them.

    ``most``: pixels; ``claimed`` is called also for plain pictures that have more. None if the files must be read one
    by one; a file that is not claimed is None in the result.
    """
    global _each
    room = int(len(paths) * _each * 9 / 8)
    for _ in range(2):  # the first attempt may find out how much room they need
        content = memory.results.lent(max(room, _LEAST))
        read = opening.read_behind(paths, content, ALIGNED, most)
        if read is None or read.gone or read.largest > _LARGEST:
            return None
        _each = learnt(_each, read.needed / len(paths))
        if not read.no_room:
            files, refused = made(ReadFiles, content, read, paths, selection, most, claimed)
            _before.add(files)
            return without(files, refused)
        room = read.needed + ALIGNED
    return None


def made(
    cls: type[F],
    content: npt.NDArray[np.uint8],
    read: opening.Behind,
    paths: Sequence[str],
    selection: Selection,
    most: int,
    claimed: Claimed,
) -> tuple[F, set[int]]:
    """Make an object of files that were read into ``content``; return it and the numbers of files not claimed."""
    known, places = read.known, read.places
    headers: dict[int, Header] = {}
    refused: set[int] = set()
    for number in _asked(known, most) if read.asked else ():
        start, size = places[number].tolist()
        row = known[number].tolist()
        plain = opening.plain_header(row) if row[of.STATE] == of.PLAIN else None
        header = claimed(File(content[start : start + size].tobytes(), size, None, plain))
        if header is None:
            refused.add(number)
        elif plain is None:
            headers[number] = header
            opening.put_header(known[number], header)
    return cls(content[: read.end], places, known, headers, paths, selection), refused


def _asked(known: Numbers, most: int) -> list[int]:
    many = known[:, of.HEIGHT] * known[:, of.WIDTH] > most
    found: list[int] = np.flatnonzero((known[:, of.STATE] == of.OTHER) | many).tolist()
    return found


def without(files: Files, refused: set[int]) -> Sequence[Source | None]:
    """The sources of the files, with None for those that are refused."""
    return [None if number in refused else files[number] for number in range(len(files))] if refused else files


def starts(sizes: Numbers) -> Numbers:
    """Where files of these sizes begin if they lie one behind another, aligned."""
    taken = -(-sizes // ALIGNED) * ALIGNED
    return np.cumsum(taken) - taken


def learnt(usual: float, needed: float) -> float:
    """Update the expected bytes of an image after a batch whose images took ``needed`` each.

    The estimate at most doubles from one batch to the next, and is halved if it is far too large: otherwise, after a
    single file of hundreds of megabytes, all later batches would take as much memory.
    """
    usual = usual or needed
    lasting = 0.99 if 4 * needed > usual else 0.5
    return min(max(needed, lasting * usual), 2 * usual)
