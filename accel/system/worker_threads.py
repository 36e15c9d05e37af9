"""How many threads compute in a DataLoader worker: its share of the cores, and fewer while its batches wait.

A worker whose batch is made waits until the training takes one. If it does so ahead of every batch, the training binds,
and fewer threads are enough: so many that a batch is still made in 0.9 of the time from one to the next. The cores that
are given back are the training's. No result depends on the number of threads.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from statistics import fmean
from time import perf_counter, perf_counter_ns
from typing import Any, NamedTuple

from torch.utils.data import get_worker_info

from accel.system import cores, counters, fork

LOOKED_AT = 8
"""The number of batches that are looked back at; the first ones are made on all threads."""

_USED, _IDLE = 0.9, 0.05  # shares of the time from one batch to the next: used at most, and not worth a change


class Times(NamedTuple):
    """Seconds of a batch: of waiting ahead of it, of work on one thread, and of work that so many threads share, of all
    of them together."""

    waited: float
    alone: float
    shared: float
    threads: int = 1


def enough(batches: Sequence[Times], threads: int, most: int) -> int:
    """The number of threads that make the next batch in time.

    Args:
        batches: the last ones. threads: that they were made on. most: the threads that there may be.
    """
    waited = min(each.waited for each in batches)
    alone, shared = fmean(each.alone for each in batches), fmean(each.shared for each in batches)
    period = waited + alone + shared / threads
    if len(batches) < LOOKED_AT or waited < _IDLE * period:
        return most
    left = _USED * period - alone
    return min(max(ceil(shared / left), 1), threads) if left > 0 else threads


class WorkerThreads:
    """The threads of this worker, from batch to batch.

    Attributes:
        number: those that share work under ``threads="auto"``. used: those that did, of the batch that is being made.
    """

    def __init__(self) -> None:
        self._most = _most()
        self.number, self.used = self._most, 1
        self._batches: deque[Times] = deque(maxlen=LOOKED_AT)
        self._ended = perf_counter()
        self._shared = self._elapsed = 0.0
        self._on_host = 0.0  # the seconds that a batch took that a device would have computed; 0: none was yet

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Around the making of a batch; behind it the number may change."""
        begun = perf_counter()
        waited, self.used, self._shared, self._elapsed = begun - self._ended, 1, 0.0, 0.0
        try:
            yield
        finally:
            self._ended = perf_counter()
        if self._shared:
            counters.worker_threads(self.used)
        self._batches.append(Times(waited, max(self._ended - begun - self._elapsed, 0.0), self._shared, self.used))
        self.number = enough(self._batches, self.used, self._most)

    def has_time(self, backlog: float) -> bool:
        """Whether to compute a batch here that a device would compute.

        It is, if the device has other batches for so long (``backlog``, in seconds). It also is in time that would be
        waited otherwise: an earlier batch is not taken yet, and computing takes no longer than from one to the next;
        not just after a batch that was made late, as then all workers might wait for each other, and none for the
        device.
        """
        if len(self._batches) < LOOKED_AT:
            return False
        if self._on_host <= backlog:
            return True
        period = fmean(each.waited + each.alone + each.shared / each.threads for each in self._batches)
        waits = min(each.waited for each in self._batches) > _IDLE * period
        return waits and orders is not None and orders.empty() and self._on_host <= period

    @contextmanager
    def on_host(self) -> Iterator[None]:
        """Around computing such a batch, on all threads."""
        begun, self.number = perf_counter(), self._most
        yield
        self._on_host = perf_counter() - begun

    @contextmanager
    def sharing(self, threads: int) -> Iterator[None]:
        """Around work that this many threads share."""
        begun = perf_counter()
        yield
        elapsed = perf_counter() - begun
        self.used = max(self.used, threads)
        self._elapsed += elapsed
        self._shared += elapsed * threads


def _most() -> int:
    """This worker's share of its parent's cores, and no more than it may run on itself."""
    worker: Any = get_worker_info()
    return min(share(cores.found(cores.affinity(os.getppid())).number, worker.num_workers), cores.affinity())


def share(whole: int, workers: int) -> int:
    """A worker's share of so many cores: rounded up, unless that makes more than 1.5 threads a core; at least one."""
    threads = ceil(whole / workers)
    return threads if threads * workers <= 1.5 * whole else max(whole // workers, 1)


orders: Any = None
"""The queue by which this worker is asked for batches."""

_own: list[WorkerThreads] = []  # one, or none yet
fork.register(in_child=_own.clear)


def own() -> WorkerThreads:
    """The threads of this process, which is a DataLoader worker."""
    if not _own:
        _own.append(WorkerThreads())
    return _own[0]


# -- in the parent ------------------------------------------------------------------------------------------

_ARRIVED, _UNTIL, _TAKES = range(3)
devices: dict[int | None, Any] = {}
"""By the number of a loader, int64 [3] that its workers see: how many batches for a device have arrived; until when it
is busy, and how long one takes, in nanoseconds of the clock."""


def arrived(loader: int | None) -> None:
    """Note that a batch of a loader has arrived that a device is to compute."""
    if (device := devices.get(loader)) is not None:
        device[:_TAKES] = device[_ARRIVED] + 1, perf_counter_ns() + device[_TAKES]


@contextmanager
def on_device() -> Iterator[None]:
    """Around computing a batch on a device; of a device that is not waited for, the time of launching is measured."""
    begun, seen = perf_counter_ns(), list(devices.values())
    for each in seen:
        each[_UNTIL] = begun + each[_TAKES]
    yield
    for each in seen:
        each[_TAKES] = perf_counter_ns() - begun
