"""The pieces into which programs and the decoder divide their memory, told to the device: each is an allocation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from accel.backends.cuda.descriptors import offset_of
from accel.backends.cuda.execute import Execution
from accel.backends.cuda.jpeg import Decoder
from accel.backends.cuda.program import Arena

from .device import PtxDevice

APART = 64  # bytes behind every piece
_WHOLE = 16  # files are read in loads of so many bytes, for which their memory has room


@contextmanager
def told(device: PtxDevice) -> Iterator[None]:
    """While this lasts the device knows all pieces."""
    take, launch, queue = Arena.take, Execution.launch, Decoder._queue

    def spaced(self: Any, size: int) -> int:
        where = take(self, size)
        take(self, APART)
        vars(self).setdefault("pieces", []).append((offset_of(where), size))
        return where

    def launched(self: Any) -> None:
        for tensor, arena in ((self._upload, self._program.upload), (self._scratch, self._program.scratch)):
            device.divide(tensor.data_ptr(), vars(arena).get("pieces", []))
        launch(self)

    def queued(self: Any, batch: Any, decoding: Any, files: Any) -> None:
        run = device.launch

        def dividing(*arguments: Any) -> None:
            pieces: list[tuple[int, int]] = []
            scratch = int(batch.pictures["state"][0]) - int(batch.pieces["state"][0][0])
            for offsets, sizes in batch.pieces.values():
                pieces += zip(offsets.tolist(), sizes.tolist(), strict=True)
            device.divide(scratch, pieces)
            sizes = -(-batch.pictures["size"].astype(np.int64) // _WHOLE) * _WHOLE
            starts = batch.pictures["file"].astype(np.int64) - files.data_ptr()
            device.divide(files.data_ptr(), list(zip(starts.tolist(), sizes.tolist(), strict=True)))
            run(*arguments)

        with mock.patch.object(device, "launch", dividing):
            queue(self, batch, decoding, files)

    with (
        mock.patch.object(Arena, "take", spaced),
        mock.patch.object(Execution, "launch", launched),
        mock.patch.object(Decoder, "_queue", queued),
    ):
        yield
