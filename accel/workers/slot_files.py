"""Files that a worker of an accelerator's loader reads directly into the slot in which it will send them.

The room that a batch needs is only known when it has been planned, so it is guessed from earlier batches. Files that do
not fit are read, or copied, as if there were no slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from accel.codec import opening
from accel.options import Selection
from accel.recipe import Source
from accel.runtime import batch_files
from accel.runtime.batch_files import ALIGNED, Claimed
from accel.sources import Files
from accel.workers import slot_pool

HEADER = 1024
"""The bytes of the header before the files in a slot."""


class SlotFiles(Files):
    """Files in a slot, after the room for its header."""

    __slots__ = ("slot",)
    slot: torch.Tensor | None

    def taken(self, size: int) -> torch.Tensor | None:
        """Hand over the slot, once; None if it has fewer bytes, or was handed over already."""
        slot, self.slot = self.slot, None
        return slot if slot is not None and len(slot) >= size else None


_needed: dict[Selection, float] = {}
"""The bytes per image that batches of a selection need in a slot."""


def note(selection: Selection, count: int, size: int) -> None:
    """Learn from the bytes that a batch of so many images needed; larger ones than usual are forgotten in time."""
    _needed[selection] = batch_files.learnt(_needed.get(selection, 0.0), size / count)


def taken(selection: Selection, count: int) -> torch.Tensor | None:
    """A slot for a batch of so many images; None if there is no pool, or the size that is needed is not known yet."""
    if not count or (pool := slot_pool.of_worker()) is None or selection not in _needed:
        return None
    return pool.empty((rounded(int(count * _needed[selection])),), torch.uint8)


def read(paths: Sequence[Any], selection: Selection, most: int, claimed: Claimed) -> Sequence[Source | None] | None:
    """Read files into a slot; None if they must be read in another way. A file that is not claimed is None."""
    count = len(paths)
    slot = taken(selection, count)
    if slot is None:
        return None
    content = slot.numpy()[HEADER:]
    read = opening.read_behind(paths, content, ALIGNED, most)
    if read is None or read.gone:
        return None
    if read.no_room:
        note(selection, count, read.needed + count * _BESIDES)
        return None
    files, refused = batch_files.made(SlotFiles, content, read, paths, selection, most, claimed)
    files.slot = slot
    return batch_files.without(files, refused)


_BESIDES = 1 << 14  # bytes that an image needs besides its file, as a first guess


def rounded(size: int) -> int:
    """The size of a slot for so many bytes: a little more, and one of few sizes, so that slots fit many batches."""
    size = HEADER + size + size // 8
    step = 1 << max(size.bit_length() - 4, 0)
    return -(-size // step) * step
