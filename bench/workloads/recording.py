"""Recording only: the pipeline without its pixels, which is what an accelerator's backend leaves to the host."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch
from torchvision.datasets import folder

import accel
from accel.cli import screen
from bench import images, usage
from bench.job import Batch, Job
from bench.measure import Red
from bench.pipelines import PIPELINES
from bench.quality import Different, check_equal
from bench.workload import Setting, Workload


def _measure(setting: Setting) -> dict[str, Any]:
    found = images.photos(setting)
    job = Job(PIPELINES["train"], found, range(len(found)), min(50, len(found)))
    entries: dict[str, Callable[[dict[str, float], int], Iterator[Batch]]] = {
        "torchvision v1, PIL": lambda spent, seed: _batches(job, spent, seed),
        "accel, recording only": lambda spent, seed: _recorded(job, spent, seed),
    }
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in entries}
    torch.set_num_threads(1)
    with usage.pinned(1) as cores, screen.Bar("recording", len(entries) * (setting.rounds + 1)) as bar:
        _check(job)
        for number in range(setting.rounds + 1):
            for name, batches in entries.items():
                spent: dict[str, float] = {}
                begin = time.process_time()
                for _ in batches(spent, number):
                    pass
                spent["CPU in all"] = time.process_time() - begin
                if number:  # the first fills caches
                    rounds[name].append({step: 1e6 * seconds / len(found) for step, seconds in spent.items()})
                bar.advance()
    medians = {name: {step: median(spent[step] for spent in some) for step in some[0]} for name, some in rounds.items()}
    theirs, ours = ([spent["CPU in all"] for spent in rounds[name]] for name in entries)
    return {
        "pipeline": "train",
        "images": len(found),
        "cores": cores,
        "microseconds per image": medians,
        "ratio": median(a / b for a, b in zip(theirs, ours, strict=True)),
        "rounds": rounds,
    }


def _check(job: Job) -> None:
    """What is recorded must come to torchvision's values.

    Raises:
        Red: it does not.
    """
    with accel.image_backend("cpu", threads=1):
        recorded = [batch.clone() for batch in _batches(job, {}, 0) if isinstance(batch, torch.Tensor)]
    for number, (wanted, found) in enumerate(zip(_batches(job, {}, 0), recorded, strict=True)):
        try:
            check_equal(wanted, found, job.names(number))
        except Different as error:
            raise Red(f"what accel recorded differs from torchvision: {error}") from error


def _recorded(job: Job, spent: dict[str, float], seed: int) -> Iterator[Batch]:
    with accel.image_backend("cpu", threads=1):
        yield from _batches(job, spent, seed)


def _batches(job: Job, spent: dict[str, float], seed: int) -> Iterator[Batch]:
    """The epoch, step by step; the seconds each step took are added to ``spent``."""
    compose: Any = job.pipeline.v1()
    steps = [("load", folder.default_loader)]
    steps += [(type(transform).__name__, transform) for transform in compose.transforms]
    spent.update(dict.fromkeys([*(name for name, _ in steps), "stack"], 0.0))
    torch.manual_seed(seed)
    for items in job.batches(seed):
        made = []
        for path, _ in items:
            image: Any = path
            for name, step in steps:
                begin = time.perf_counter()
                image = step(image)
                spent[name] += time.perf_counter() - begin
            made.append(image)
        begin = time.perf_counter()
        batch = torch.stack(made)
        spent["stack"] += time.perf_counter() - begin
        yield batch


RECORDING = Workload("recording", "submission only: train pipeline on photos recorded, one core", _measure)
