"""The pieces into which the cuda backend divides its memory, the only memory that a kernel may touch.

Each file is a piece of the batch's memory, each array of descriptors, what a schedule takes of uploaded and of scratch
memory, and what the JPEG decoder takes of the latter. Otherwise that memory is one allocation, so that an access to the
next piece would go unnoticed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from accel.backends.cuda.descriptors import offset_of
from accel.backends.cuda.execution import Execution
from accel.backends.cuda.finished import Finished, Section
from accel.backends.cuda.jpeg.described import places
from accel.backends.cuda.regions import ALIGNED
from accel.backends.cuda.schedule import Arena

GAP = 64
"""Free bytes behind every piece."""
_WHOLE = 16  # files are read in loads of so many bytes, to which their memory is padded

Divide = Callable[[int, int, list[tuple[int, int]]], None]
"""Called with a block's address and size, and the offsets and sizes of its pieces."""


@contextmanager
def divided(divide: Divide, joined: Callable[[int, int], None] = lambda address, size: None) -> Iterator[None]:
    """A context that calls ``divide`` with every block before kernels use it, and ``joined`` afterwards."""
    take, launch = Arena.take, Execution.launch

    def taken(self: Any, size: int) -> int:
        where = take(self, size + GAP)
        vars(self).setdefault("pieces", []).append((offset_of(where), size))
        return where

    def launched(self: Execution) -> None:
        memory = self.work.memory
        if self.finished.schedule is None:  # a worker's
            launch(self)
            return
        divide(memory.data_ptr(), len(memory), list(_pieces(self.finished)))
        launch(self)
        joined(memory.data_ptr(), len(memory))

    with mock.patch.object(Arena, "take", taken), mock.patch.object(Execution, "launch", launched):
        yield


def _pieces(made: Finished) -> Iterator[tuple[int, int]]:
    """The offsets and sizes of the pieces of a batch's memory."""
    said, batch, schedule = made.summary, made.batch, made.schedule
    assert schedule is not None
    for offset, size in made[Section.PIECES].tolist():
        yield offset, -(-size // _WHOLE) * _WHOLE
    behind, scratch = said.behind, said.working
    if batch is not None:
        owners = [4 * int(each.sum()) for each in batch.each]
        sizes = np.array([batch.segments.nbytes, *owners, batch.pictures.nbytes], np.int64)
        offsets, size = places(sizes)
        yield from zip((behind + offsets).tolist(), sizes.tolist(), strict=True)
        for starts, sizes in batch.pieces.values():
            yield from zip((scratch + starts).tolist(), sizes.tolist(), strict=True)
        behind, scratch = behind + size, scratch + -(-batch.scratch // ALIGNED) * ALIGNED
    for start, arena in ((behind, schedule.upload), (scratch, schedule.scratch)):
        for offset, size in vars(arena).get("pieces", []):
            yield start + offset, size
