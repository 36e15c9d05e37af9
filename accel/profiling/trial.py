"""A trial: the user's own samples made by the backend in force and by another, in turns, to predict a switch.

A worker of a loader of the trial's own makes them, so nothing changes in the process that is measured: no random state,
no dataset, no open file. For a loader without workers, the worker loads as a process without workers does.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from accel import switch
from accel.lazy import search
from accel.lazy.tensor_base import LazyTensorBase
from accel.profiling.measured import Trial
from accel.system import log
from accel.system.private_names import private

_BATCH, _MOST = 8, 8
_ROUNDS = 2
_SECONDS = 2.0  # that it may take all in all, as far as a few batches allow

_worker = private("torch.utils.data._utils.worker")


def measure(loader: DataLoader[Any], name: str = "cpu", image_s: float = 0.005) -> Trial | None:
    """Compare a backend with the one in force on some samples of a loader.

    Args:
        loader: of a map-style dataset; its collate function is called, too.
        name: of the other backend, with its default options.
        image_s: seconds that an image is known to take; how many are tried follows from it.

    Returns:
        None where it cannot be done here: without fork, or where a sample fails; the log says why.
    """
    present = switch.get_image_backend()
    unfit = isinstance(loader.dataset, IterableDataset) or loader.batch_size is None or not hasattr(os, "fork")
    if unfit or name == present or switch.image_backends().get(name, "unknown") is not None:
        return None
    try:
        batches = _batches(len(loader.dataset), image_s)  # type: ignore[arg-type]
        times: dict[str, list[tuple[float, float]]] = {present: [], name: []}
        for _ in range(_ROUNDS):  # in turns: whatever else runs on the machine comes over both
            for each, found in times.items():
                with switch.image_backend(each):
                    found.append((_by_worker if loader.num_workers else _alone)(loader, batches))
    except Exception as error:
        log.note(log.WARNING, "accel could not try the backend %s on these samples: %r", name, error)
        return None
    (base_s, base_cpu_s), (seconds, cpu_s) = min(times[present]), min(times[name])
    return Trial((len(batches) - 1) * _BATCH, seconds, cpu_s, base_s, base_cpu_s)


def _batches(length: int, image_s: float) -> list[list[int]]:
    """Indices of some samples; the first batch is made to begin with, and not counted."""
    count = min(max(int(_SECONDS / (image_s * _BATCH * 2 * _ROUNDS)), 3), _MOST)
    drawn = random.Random(0)
    return [[drawn.randrange(length) for _ in range(_BATCH)] for _ in range(count)]


def _by_worker(loader: DataLoader[Any], batches: list[list[int]]) -> tuple[float, float]:
    """Seconds, and seconds of CPU, for an image in a worker that does not wait: from collating to collating."""
    begun = [times for _, times in _loader(loader, batches, _Timed(loader.collate_fn), num_workers=1)]
    images = (len(begun) - 1) * _BATCH
    return (begun[-1][0] - begun[0][0]) / images, (begun[-1][1] - begun[0][1]) / images


def _loader(loader: DataLoader[Any], batches: list[list[int]], collate: Callable[[Any], Any], **how: Any) -> Any:
    if how.get("num_workers"):
        how |= {"multiprocessing_context": "fork", "prefetch_factor": len(batches)}
        how["worker_init_fn"] = loader.worker_init_fn
    return DataLoader(loader.dataset, batch_sampler=batches, collate_fn=collate, generator=torch.Generator(), **how)


class _Timed:
    """A collate function, and when it was called, by the clock and by the process's CPU time."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self._collate = collate

    def __call__(self, samples: list[Any]) -> tuple[Any, tuple[float, float]]:
        times = time.perf_counter(), time.process_time()
        return self._collate(samples), times


def _alone(loader: DataLoader[Any], batches: list[list[int]]) -> tuple[float, float]:
    """The same in a process without workers, whose pool of threads computes what is lazy."""
    inner = _loader(loader, batches, loader.collate_fn, num_workers=0)
    outer = DataLoader(
        _Alone(inner), batch_size=None, num_workers=1, multiprocessing_context="fork", generator=torch.Generator()
    )
    (times,) = outer
    images = (len(batches) - 1) * _BATCH
    return float(times[0]) / images, float(times[1]) / images


class _Alone(IterableDataset[Any]):
    """Loads all batches as if it were no worker, and gives the time that all but the first took."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[tuple[float, float]]:
        _worker._worker_info = None
        begun: tuple[float, float] | None = None
        for batch in self._loader:
            for each in search.lazy_tensors(batch):
                LazyTensorBase.materialize(each)
            begun = begun or (time.perf_counter(), time.process_time())
        assert begun is not None
        yield time.perf_counter() - begun[0], time.process_time() - begun[1]
