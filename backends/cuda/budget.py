"""Batches within a budget of memory: in chunks, and once more in smaller ones where memory runs out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from accel.backends.cuda.device import Device
from accel.backends.cuda.lowering import device_bytes
from accel.planning.plan import Decode, Plan

_MOST = 2 << 30
_SMALLER = 4


def default(device: Device) -> int:
    """A quarter of what is free, at most 2 GiB: as much is pinned on the host."""
    return max(min(device.free_memory() // 4, _MOST), 1)


def in_chunks(
    plan: Plan, limit: int, run: Callable[[Plan], None], size_of: Callable[[Decode], int] = device_bytes
) -> None:
    """Run a plan as several of at most ``limit`` bytes each (or one source); once more, smaller, where memory runs out.

    ``size_of``: the bytes that one source and what is made of it take on the device.
    Every chunk is a plan of the whole batch's shape with some of its decodes, so the pieces may be run in any order.

    Raises:
        torch.OutOfMemoryError: it ran out of memory twice.
    """
    done = 0
    try:
        for chunk in chunks(plan.decodes, limit, size_of):
            run(plan._replace(decodes=chunk))
            done += len(chunk)
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
    else:
        return
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    smaller = min(limit, max(map(size_of, plan.decodes))) // _SMALLER
    try:
        for chunk in chunks(plan.decodes[done:], smaller, size_of):
            run(plan._replace(decodes=chunk))
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        raise torch.OutOfMemoryError(
            f"accel: out of memory for a batch of {plan.shape[0]} images, twice: in chunks of {limit >> 20} MiB and of "
            f"{smaller >> 20} MiB. The last reason: {error}"
        ) from error


def chunks(
    decodes: tuple[Decode, ...], limit: int, size_of: Callable[[Decode], int] = device_bytes
) -> Iterator[tuple[Decode, ...]]:
    """The decodes in order, in runs of at most ``limit`` bytes each, or of one."""
    first, total = 0, 0
    for number, wanted in enumerate(decodes):
        size = size_of(wanted)
        if total + size > limit and number > first:
            yield decodes[first:number]
            first, total = number, 0
        total += size
    yield decodes[first:]


def out_of_memory(error: BaseException) -> bool:
    """Whether that is what it says; torch has a class of its own only for the device's allocator."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    text = str(error)
    return "out of memory" in text or "can't allocate memory" in text or "not enough memory" in text
