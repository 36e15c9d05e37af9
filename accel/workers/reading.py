"""Reading files that a dataset opens one by one directly into the slot in which the worker will send their batch.

The slot is taken before it is known what will be opened, as large as earlier batches needed. A file that does not fit
is read as if there were no slot; one that is not sent with its batch is copied out of it.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from accel.codec import opening
from accel.codec import opening_fields as of
from accel.codec.header import Header
from accel.memo import cached
from accel.options import Selection
from accel.recipe import Source
from accel.runtime.batch_files import ALIGNED
from accel.workers import slot_files
from accel.workers.slot_files import HEADER, SlotFiles


class SlotSource(Source):
    """A file in a slot.

    Attributes:
        reading: the batch with which it was read; None: it has a copy of its own.
        start: its offset among the files of the slot. known: its fields (``codec.opening_fields``).
    """

    __slots__ = ("known", "reading", "start")

    reading: Reading | None
    start: int
    known: list[int]

    def leave(self) -> None:
        """Copy the bytes out of the slot, because the user keeps the source longer than its batch."""
        self.data, self.reading = bytes(self.data), None


class Reading:
    """The files of one batch while they are being read, and until they are sent."""

    def __init__(self, selection: Selection, slot: torch.Tensor) -> None:
        self.selection = selection
        self._slot: torch.Tensor | None = slot
        self._content = slot.numpy()[HEADER:]
        self._address, self._room, self._end = slot.data_ptr() + HEADER, len(self._content), 0
        self.sources: list[weakref.ref[SlotSource]] = []
        self._row: list[int] = []
        self._start = 0

    def read(self, path: object) -> opening.File | None:
        """Read a file into the slot; None if it must be read in the usual way."""
        start = -(-self._end // ALIGNED) * ALIGNED
        row = opening.read_to(path, self._address + start, self._room - start) if start < self._room else None
        if row is None:
            return None
        self._start, self._row, size = start, row, row[of.READ]
        header = opening.plain_header(row) if row[of.STATE] == of.PLAIN else None
        content = self._content[start : start + size]
        data = content.data if header is not None else content.tobytes()
        return opening.File(data, size, opening.key(row), header)  # type: ignore[arg-type]

    def kept(self, file: opening.File, header: Header, name: str) -> Source:
        """Keep the file that was read last, which has this header, in the slot; return its source."""
        start, row, size = self._start, self._row, file.size
        self._end = start + size
        if file.header is None:
            row[of.SCAN :] = header.scan, 3 if header.mode == "RGB" else 1, header.height, header.width
        data = self._content[start : start + size].data.toreadonly()
        source = SlotSource(data, header, name, self.selection, key=file.key)
        source.reading, source.start, source.known = self, start, row
        self.sources.append(weakref.ref(source))
        return source

    def files(self, sources: Sequence[SlotSource]) -> SlotFiles | None:
        """Some of its sources as ``SlotFiles``, in this order; None if a name has a zero in it."""
        if any("\0" in source.name for source in sources):
            return None
        known = np.array([source.known for source in sources], np.int64)
        places = np.stack([np.array([source.start for source in sources], np.int64), known[:, of.READ]], 1)
        headers = {n: source.header for n, source in enumerate(sources) if source.known[of.STATE] != of.PLAIN}
        names = [source.name for source in sources]
        files = SlotFiles(self._content[: self._end], places, known, headers, names, self.selection)  # type: ignore[arg-type]
        files.slot, self._slot = self._slot, None
        return files


class _OfThread(threading.local):
    """A thread's current reading, and the sources of those before it."""

    def __init__(self) -> None:
        self.now: Reading | None = None
        self.before: deque[list[weakref.ref[SlotSource]]] = deque()


_of_thread = _OfThread()
_PATIENCE = 4  # batches after which sources that still exist are kept by the user, and not about to be sent


def current(selection: Selection) -> Reading | None:
    """This thread's current reading, if it is for images of this selection, else None."""
    now = _of_thread.now
    return now if now is not None and now.selection == selection else None


@contextmanager
def reading(selection: Selection | None, count: int) -> Iterator[None]:
    """Have files of a batch of ``count`` samples read into a slot in the block, if this worker has one."""
    own = _of_thread
    while len(own.before) >= _PATIENCE:
        for each in own.before.popleft():
            if (source := each()) is not None:
                source.leave()
    slot = None if selection is None or cached.in_use else slot_files.taken(selection, count)
    if selection is None or slot is None:
        yield
        return
    own.now = now = Reading(selection, slot)
    try:
        yield
    finally:
        own.now = None
        own.before.append(now.sources)


def files_of(sources: Sequence[Source]) -> SlotFiles | None:
    """Sources as files in a slot; None if they are not all in the same one."""
    own = sources[0].reading if type(sources[0]) is SlotSource else None
    found = [source for source in sources if type(source) is SlotSource and source.reading is own]
    return None if own is None or len(found) < len(sources) else own.files(found)
