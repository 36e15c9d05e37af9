"""The pieces into which the cuda backend divides its memory, the only memory that a kernel may touch.

A schedule has pieces in uploaded and in scratch memory, the JPEG decoder in scratch memory, and each file is a piece.
Otherwise a block is one allocation, so that an access to the next piece would go unnoticed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from accel.backends.cuda.descriptors import offset_of
from accel.backends.cuda.jpeg import Decoder
from accel.backends.cuda.schedule import Arena, Execution

GAP = 64
"""Free bytes behind every piece."""
_WHOLE = 16  # files are read in loads of so many bytes, to which their memory is padded

Divide = Callable[[int, int, list[tuple[int, int]]], None]
"""Called with a block's address and size, and the offsets and sizes of its pieces."""


@contextmanager
def divided(divide: Divide, joined: Callable[[int, int], None] = lambda address, size: None) -> Iterator[None]:
    """A context that calls ``divide`` with every block before kernels use it, and ``joined`` afterwards."""
    take, launch, queue = Arena.take, Execution.launch, Decoder._queue

    def taken(self: Any, size: int) -> int:
        where = take(self, size + GAP)
        vars(self).setdefault("pieces", []).append((offset_of(where), size))
        return where

    def launched(self: Any) -> None:
        blocks = ((self._upload, self._schedule.upload), (self._scratch, self._schedule.scratch))
        for tensor, arena in blocks:
            divide(tensor.data_ptr(), len(tensor), vars(arena).get("pieces", []))
        launch(self)
        for tensor, _ in blocks:
            joined(tensor.data_ptr(), len(tensor))

    def queued(self: Any, batch: Any, decoding: Any, files: Any) -> None:
        device = self._device
        run = device.launch

        def first(*arguments: Any) -> None:
            device.launch = run
            pieces: list[tuple[int, int]] = []
            for offsets, sizes in batch.pieces.values():
                pieces += zip(offsets.tolist(), sizes.tolist(), strict=True)
            scratch = int(batch.pictures["state"][0]) - int(batch.pieces["state"][0][0])
            divide(scratch, batch.scratch, pieces)
            sizes = -(-batch.pictures["size"].astype(np.int64) // _WHOLE) * _WHOLE
            starts = batch.pictures["file"].astype(np.int64) - files.data_ptr()
            divide(files.data_ptr(), len(files), list(zip(starts.tolist(), sizes.tolist(), strict=True)))
            run(*arguments)

        device.launch = first
        queue(self, batch, decoding, files)
        for tensor in (decoding._memory, files):
            joined(tensor.data_ptr(), len(tensor))

    with (
        mock.patch.object(Arena, "take", taken),
        mock.patch.object(Execution, "launch", launched),
        mock.patch.object(Decoder, "_queue", queued),
    ):
        yield
