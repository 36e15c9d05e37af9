"""Files that a worker of an accelerator's loader reads straight into the slot in which it will send them.

How much room a batch needs is only known when it has been planned, so it is guessed from the batches before. What turns
out not to fit is read, or copied, as if there were no slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from accel.codec import opening
from accel.codec import opening_fields as of
from accel.codec.header import Header
from accel.codec.opening import File
from accel.options import Selection
from accel.recipe import Source
from accel.sources import Files, Numbers, encoded
from accel.workers import slot_pool

HEADER = 1024
"""Bytes in front of the files in a slot."""

ALIGNED = 64
"""What every part of a slot, and every file, begins at a multiple of."""


class SlotFiles(Files):
    """Files in a slot, behind the room for its header."""

    __slots__ = ("slot",)
    slot: torch.Tensor | None

    def taken(self, size: int) -> torch.Tensor | None:
        """Hand over the slot, once, if it has at least so many bytes."""
        slot, self.slot = self.slot, None
        return slot if slot is not None and len(slot) >= size else None


_needed: dict[Selection, float] = {}
"""Bytes that an image of a selection's batches needs in a slot."""


def note(selection: Selection, count: int, size: int) -> None:
    """Learn how many bytes a batch of so many images needed; what is larger than usual is forgotten in time.

    A guess at most doubles from one batch to the next, and one that is far too large is halved: after a single file of
    hundreds of megabytes all other batches would take as much memory.
    """
    needed = size / count
    usual = _needed.get(selection, needed)
    lasting = 0.99 if 4 * needed > usual else 0.5
    _needed[selection] = min(max(needed, lasting * usual), 2 * usual)


def taken(selection: Selection, count: int) -> torch.Tensor | None:
    """A slot for a batch of so many images; None where there is none, or nobody knows yet how large it should be."""
    if not count or selection not in _needed or (pool := slot_pool.of_worker()) is None:
        return None
    return pool.empty((rounded(int(count * _needed[selection])),), torch.uint8)


def read(
    paths: Sequence[Any],
    selection: Selection,
    asked: Callable[[Numbers], Any],
    claimed: Callable[[File], Header | None],
) -> Sequence[Source | None] | None:
    """Read files into a slot; None where they are to be read in another way.

    Args:
        asked: tells, of what is known of the files, of which plain ones ``claimed`` is to be asked, too: bool [files].
        claimed: gives the header of a file; None for one that is not claimed, which is then None.
    """
    count = len(paths)
    slot = taken(selection, count)
    if slot is None:
        return None
    content = slot.numpy()[HEADER:]
    known = opening.read_behind(paths, content, ALIGNED)
    if known is None or (known[:, of.STATE] == of.NONE).any():
        return None
    if (known[:, of.STATE] == of.LARGE).any():
        note(selection, count, int(known[:, of.BYTES].sum()) + count * _BESIDES)
        return None
    sizes = known[:, of.READ]
    places = np.stack([starts(sizes), sizes], 1)
    headers, refused = {}, set()
    for number in np.flatnonzero((known[:, of.STATE] == of.OTHER) | asked(known)).tolist():
        start, size = places[number].tolist()
        row = known[number].tolist()
        plain = opening.plain_header(row) if row[of.STATE] == of.PLAIN else None
        header = claimed(File(content[start : start + size].tobytes(), size, None, plain))
        if header is None:
            refused.add(number)
        elif plain is None:
            headers[number] = header
            components = 3 if header.mode == "RGB" else 1
            known[number, of.SCAN :] = header.scan, components, header.height, header.width
    files = SlotFiles(content[: places[-1].sum()], places, known, headers, encoded(paths), selection)
    files.slot = slot
    return [None if number in refused else files[number] for number in range(count)] if refused else files


def starts(sizes: Numbers) -> Numbers:
    """Where files of these sizes begin, one behind another."""
    taken = -(-sizes // ALIGNED) * ALIGNED
    return np.cumsum(taken) - taken


_BESIDES = 1 << 14  # bytes that an image needs besides its file, as a first guess


def rounded(size: int) -> int:
    """A little more, and one of few sizes: slots are used again for batches of about one size."""
    size = HEADER + size + size // 8
    step = 1 << max(size.bit_length() - 4, 0)
    return -(-size // step) * step
