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


_NAMES = "uint8 int8 int16 int32 int64 bool float16 bfloat16 float32 float64"
_CASTS: tuple[tuple[Step, ...], ...] = ((), *((("to", (getattr(torch, name),)),) for name in _NAMES.split()))
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
