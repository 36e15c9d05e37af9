"""Memory that the files of a batch are read into, one behind another.

It is lent (``memory.results``), and reused once nobody refers to any of the files; or it is the slot of shared memory
in which a worker will send the batch. How much a batch needs is only known afterwards, so it is guessed from earlier
ones. Files that do not fit are read, or copied, as if there were no slot.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from accel.codec.files import fields as of
from accel.codec.files import reader
from accel.codec.files.fields import ALIGNED
from accel.codec.files.reader import File, Table
from accel.codec.header import Header
from accel.system import memory

HEADER = 1024
"""The bytes of the header before the files in a slot."""

_PATIENCE = 4  # batches after which a source that outlives its batch gets its own copy of its bytes
_LARGEST = 1 << 26  # bytes of a file; larger ones, whose size may be false and exceed memory, are read one by one
_LEAST = 1 << 21  # bytes that are lent: a huge page, into which copying a small file takes three quarters of the time
_BESIDES = 1 << 14  # bytes that an image needs in a slot besides its file, as a first guess


class BatchMemory:
    """Memory for the files of one batch.

    Attributes:
        content: uint8 [bytes]. sources: weak references to the sources whose bytes lie in it.
        beside: the bytes of files that found no room.
        together: whether all files were read at once, and stay together as long as this object is in use.
    """

    def __init__(self, content: npt.NDArray[np.uint8], slot: torch.Tensor | None = None, together: bool = True) -> None:
        """``slot``: the tensor that a worker will send, of which ``content`` is a part; None: the memory is lent."""
        self.content, self._slot, self.together = content, slot, together
        self.sources: list[weakref.ref[Any]] = []
        self.beside = 0
        self._address: int = content.__array_interface__["data"][0]
        self._start = self._end = 0
        self._row: list[int] = []

    @staticmethod
    def of_slot(slot: torch.Tensor, together: bool) -> BatchMemory:
        return BatchMemory(slot.numpy()[HEADER:], slot, together)

    def read_all(self, paths: Sequence[Any], most: int) -> Table | None:
        return reader.read_to(paths, self._address, len(self.content), most)

    def read(self, path: Any) -> File | None:
        """Read one more file; None if it does not fit, or must be read in the usual way."""
        start = -(-self._end // ALIGNED) * ALIGNED
        row = reader.read_one_to(path, self._address + start, len(self.content) - start)
        if row is None:
            return None
        self._start, self._row, size = start, row, row[of.READ]
        header = reader.plain_header(row) if row[of.STATE] == of.PLAIN else None
        content = self.content[start : start + size]
        data: Any = content.data if header is not None else content.tobytes()
        return File(data, size, reader.key(row), header)

    def keep(self, file: File, header: Header) -> tuple[memoryview, Place]:
        """Keep the file that was read last, which has this header; return its bytes and its place."""
        row, start, self._end = self._row, self._start, self._start + file.size
        if header is not file.header:
            reader.put_header(row, header)
            row[of.STATE] = of.OTHER
        return self.content[start : self._end].data.toreadonly(), Place(self, start, row)

    def kept(self) -> npt.NDArray[np.uint8]:
        """The memory up to the end of the last file that was kept."""
        return self.content[: self._end]

    def hand_over(self, size: int) -> torch.Tensor | None:
        """Hand over the slot, once; None if it has fewer bytes, or there is none any more."""
        slot, self._slot = self._slot, None
        return slot if slot is not None and len(slot) >= size else None


class Place(NamedTuple):
    """Where a file lies that was read by itself into a batch's memory: its offset and its fields (``fields``)."""

    memory: BatchMemory
    start: int
    row: list[int]


class _OfThread(threading.local):
    """The memory that a thread reads single files into, for whom, and its last batches with their sources."""

    def __init__(self) -> None:
        self.now: BatchMemory | None = None
        self.selection: Hashable = None
        self._before: deque[tuple[weakref.ref[BatchMemory], list[weakref.ref[Any]]]] = deque()

    def begin(self, batch: BatchMemory) -> None:
        """Begin a batch. Sources that outlive an earlier one get copies of their bytes: a single one would keep the
        memory of all."""
        self._before.append((weakref.ref(batch), batch.sources))
        if len(self._before) > _PATIENCE:
            earlier, sources = self._before.popleft()
            stays = (found := earlier()) is not None and found.together
            for each in () if stays else sources:
                if (source := each()) is not None:
                    source.leave()


_of_thread = _OfThread()


# -- all files of a batch at once ---------------------------------------------------------------------------

_each = 0.0  # the expected bytes of a file in lent memory


def _lent(count: int, together: bool, least: int = 0) -> BatchMemory:
    return BatchMemory(memory.results.lent(max(int(count * _each * 9 / 8), least, _LEAST)), together=together)


def read_together(
    paths: Sequence[Any], selection: Hashable, slot: torch.Tensor | None, most: int
) -> tuple[BatchMemory, Table] | None:
    """Read files into a slot, if there is one and they fit, else into lent memory; None: read them one by one."""
    global _each
    count = len(paths)
    if slot is not None:
        batch = BatchMemory.of_slot(slot, together=True)
        table = batch.read_all(paths, most)
        if table is None or table.missing:
            return None
        if not table.no_room:
            _of_thread.begin(batch)
            return batch, table
        note(selection, count, table.needed + count * _BESIDES)
    least = 0
    for _ in range(2):  # the first attempt may find out how much the files need
        batch = _lent(count, True, least)
        table = batch.read_all(paths, most)
        if table is None or table.missing or table.largest > _LARGEST:
            return None
        _each = learnt(_each, table.needed / count)
        if not table.no_room:
            _of_thread.begin(batch)
            return batch, table
        least = table.needed + ALIGNED
    return None


def places_of(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where files of these sizes lie one behind another: int64 [files, 2], each file's offset and size."""
    places = np.empty((len(sizes), 2), np.int64)
    places[0, 0], places[:, 1] = 0, sizes
    np.cumsum((sizes[:-1] + (ALIGNED - 1)) & -ALIGNED, out=places[1:, 0])
    return places


# -- one file after another, as a worker's dataset opens them ------------------------------------------------


def current(selection: Hashable) -> BatchMemory | None:
    """The memory that this thread reads single files of a selection into, else None."""
    now = _of_thread.now
    return now if now is not None and _of_thread.selection == selection else None


@contextmanager
def filling(slot: torch.Tensor | None, count: int, selection: Hashable) -> Iterator[None]:
    """Have this thread read single files of ``count`` samples into a slot in the block; None: into lent memory."""
    global _each
    own, batch = _of_thread, BatchMemory.of_slot(slot, together=False) if slot is not None else _lent(count, False)
    own.now, own.selection = batch, selection
    own.begin(batch)
    try:
        yield
    finally:
        own.now = None
    if needed := len(batch.kept()) + batch.beside:
        _each = learnt(_each, needed / count)


# -- how much memory batches need ---------------------------------------------------------------------------

_needed: dict[Hashable, float] = {}
"""The bytes per image that batches of a selection need in a slot."""


def note(selection: Hashable, count: int, size: int) -> None:
    """Learn from the bytes that a batch of so many images needed in a slot."""
    _needed[selection] = learnt(_needed.get(selection, 0.0), size / count)


def slot_size(selection: Hashable, count: int) -> int:
    """The size of a slot for a batch of so many images; 0: it is not known yet."""
    return rounded(int(count * _needed[selection])) if count and selection in _needed else 0


def rounded(size: int) -> int:
    """The size of a slot for so many bytes: a little more, and one of few sizes, so that slots fit many batches."""
    size = HEADER + size + size // 8
    step = 1 << max(size.bit_length() - 4, 0)
    return -(-size // step) * step


def learnt(usual: float, needed: float) -> float:
    """Update the expected bytes of an image after a batch whose images took ``needed`` each.

    The estimate at most doubles from one batch to the next, and is halved if it is far too large: otherwise, after a
    single file of hundreds of megabytes, all later batches would take as much memory.
    """
    usual = usual or needed
    lasting = 0.99 if 4 * needed > usual else 0.5
    return min(max(needed, lasting * usual), 2 * usual)
