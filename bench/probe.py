"""A contestant alone in a process, for what cannot be told apart in one: its memory, and what crosses to it."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import torch

from accel.cli.harness import Batch
from accel.lazy.tensor_base import LazyTensorBase
from accel.workers import packing
from bench import usage
from bench.contestants.contestant import Contestant
from bench.job import Images, Job
from bench.null_accelerator import Recipes
from bench.pipelines import PIPELINES

_BATCH, _EPOCH = 32, 256


def probe(contestant: Contestant, level: int, files: Sequence[str]) -> dict[str, Any]:
    """Of some batches with ``level`` workers (or threads): peak memory of this process and its workers above what they
    had once everything was set up, and the bytes that cross from workers to the main process."""
    threads = contestant.scales[0] == "threads"
    order = [number % len(files) for number in range(_EPOCH)]
    own, workers = (level, 0) if threads else (1, level)
    job = Job(PIPELINES["train"], Images(files=files), order, _BATCH, own, workers)
    torch.set_num_threads(1)
    images = crossing = 0
    with contestant.open(job) as epoch, contestant.in_force(job):
        for batch in epoch(0):  # starts workers and fills caches
            crossing += 0 if threads else _bytes(batch)
            images += len(batch)
        with usage.PeakMemory() as peak:
            for _ in epoch(1):
                peak.look()
    return {
        "name": contestant.title,
        "workers": workers,
        "threads": own,
        "peak MB": peak.highest / 1e6,
        "bytes across process borders per image": None if threads else crossing / images,
    }


class Shipped(Recipes):
    """The same, but recipes are kept as they come, to be weighed."""

    def finish(self, batch: Batch) -> Batch:
        return batch


def _bytes(batch: Batch) -> int:
    """The bytes that cross with a batch: those of its tensors, or of its files and recipes."""
    if isinstance(batch, LazyTensorBase):
        data, *rest = packing.pack(batch.lazy.recipes)
        return data.nbytes + len(pickle.dumps(rest))
    return sum(tensor.untyped_storage().nbytes() for tensor in ([batch] if isinstance(batch, torch.Tensor) else batch))
