"""How a loader's batches are used: a cast and a memory order, which the parent learns and its workers then expect.

It is one number in the memory that they share (``Arena.use``): 0 as long as nothing is known, -1 once uses differed.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from accel.processes import slot_pool
from accel.recipes.recipe import Step


class Use(NamedTuple):
    """The memory order and the casts with which batches are used."""

    interleaved: bool
    casts: tuple[Step, ...]


_DTYPES = (
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
)  # fmt: skip
_CASTS: tuple[tuple[Step, ...], ...] = ((), *((("to", (dtype,)),) for dtype in _DTYPES))
_USES = [Use(interleaved, casts) for casts in _CASTS for interleaved in (False, True)]
_DIFFER = -1


def learn(loader: int, use: Use) -> None:
    """Have the workers of a loader expect the same use of later batches, unless others were used otherwise."""
    arena = slot_pool.arena_of(loader)
    if arena is None:
        return
    code = 1 + _USES.index(use) if use in _USES else _DIFFER
    before = int(arena.use[0])
    arena.use[0] = code if before in (0, code) else _DIFFER


def expected() -> Use | None:
    """The expected use of a batch of this worker's loader; None if it is not known. Any thread may call it."""
    pool = slot_pool.of_worker()  # known to a queue's feeder thread as well
    code = 0 if pool is None else int(pool.arena.use[0])
    return _USES[code - 1] if code > 0 else None
