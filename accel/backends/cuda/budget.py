"""Running batches within a memory budget: in chunks, and again in smaller ones if memory runs out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import torch

from accel.backends.cuda.device import Device
from accel.planning.plan import Plan
from accel.runtime import picture_memory, streams

_MOST = 16 << 30
_SHARE = 2 * streams.MOST  # of all batches that are computed at a time, half of the device's free memory
_EVERY = 1.0  # seconds, as the question takes a part of a millisecond
_HOST_SHARE = 16  # one part in so many of the host's memory: as much is pinned if the host decodes
_SMALLER = 4


class Budget:
    """The bytes that a batch on one device may take at a time."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._largest = self._limit = 0
        self._due = 0.0

    def _of(self, size: int, sent: int | None) -> int:
        """The bytes that a batch may take, determined anew if it is larger than all before, after memory ran out, and
        every second, as a model or another process may have taken memory since."""
        now = time.monotonic()
        if size > self._largest or now >= self._due:
            self._limit = max(min(self._device.free_memory() // _SHARE, _MOST), 1)  # before another thread may read it
            self._largest, self._due = max(size, self._largest), now + _EVERY
        on_host = picture_memory.memory() // _HOST_SHARE
        return self._limit if sent is not None and sent <= on_host else max(min(self._limit, on_host), 1)

    def in_chunks(
        self,
        plan: Plan,
        run: Callable[[Plan], None],
        sizes_of: Callable[[Plan], npt.ArrayLike],
        limit: int | None,
        sent: int | None = None,
        total: int | None = None,
    ) -> None:
        """Run a plan, in chunks if it takes more than it may; again, in smaller ones, if memory runs out.

        ``sizes_of``: returns the bytes that each source and the images made of it take on the device. ``limit``: the
        most bytes of a chunk (unless it is one source); None for as many as memory allows. ``sent``: the bytes of host
        memory that the whole plan takes, if known; else taken to be those on the device. ``total``: the sum of the
        sizes, if known; ``sizes_of`` is then called only if it is too much.
        Every chunk is a plan of the whole batch's shape with some of its decodes, so chunks may be run in any order.

        Raises:
            torch.OutOfMemoryError: it ran out of memory twice.
        """
        sizes: npt.NDArray[np.int64] | None = None
        if total is None:
            sizes = np.asarray(sizes_of(plan), np.int64)
            total = int(sizes.sum())
        limit, done = limit or self._of(total, sent), 0
        try:
            if total <= limit:
                run(plan)
                return
            sizes = np.asarray(sizes_of(plan), np.int64) if sizes is None else sizes
            for chunk in chunks(sizes, limit):
                run(plan if chunk == slice(0, len(sizes)) else plan._replace(decodes=plan.decodes[chunk]))
                done = chunk.stop
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
        else:
            return
        self._largest = 0
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        sizes = np.asarray(sizes_of(plan), np.int64) if sizes is None else sizes
        smaller = min(limit, int(sizes.max())) // _SMALLER
        try:
            for chunk in chunks(sizes, smaller, done):
                run(plan._replace(decodes=plan.decodes[chunk]))
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            raise torch.OutOfMemoryError(
                f"accel: out of memory for a batch of {plan.shape[0]} images, twice: in chunks of {limit >> 20} MiB "
                f"and of {smaller >> 20} MiB. The last reason: {error}"
            ) from error


def chunks(sizes: npt.NDArray[np.int64], limit: int, first: int = 0) -> Iterator[slice]:
    """The places from ``first`` on in slices of at most ``limit`` bytes each, or of one place."""
    ends = np.cumsum(sizes)
    while first < len(sizes):
        before = ends[first] - sizes[first]
        last = max(int(np.searchsorted(ends, before + limit, "right")), first + 1)
        yield slice(first, last)
        first = last


def out_of_memory(error: BaseException) -> bool:
    """Whether an error means a lack of memory; torch has a class for it only in the device's allocator."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    text = str(error)
    return "out of memory" in text or "can't allocate memory" in text or "not enough memory" in text
