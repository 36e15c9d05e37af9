"""Recording only: the pipeline without its pixels, which is what an accelerator's backend leaves to the host."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import torch
from torchvision.datasets import folder
from torchvision.transforms import v2

import accel
from accel.cli import screen
from accel.cli.arguments import Red
from accel.cli.costs import ratio, take_turns
from accel.cli.harness import Batch, Contestant, check
from bench import usage
from bench.job import Job
from bench.pipelines import PIPELINES
from bench.workload import Setting, Workload

_EPOCHS = 3
"""In a round, of each contestant."""


Steps = list[tuple[str, Callable[[Any], Any]]]
"""The steps that a file goes through, by name."""


def _v1(job: Job) -> Steps:
    return [("load", folder.default_loader), *_named(job.pipeline.v1())]


def _v2(job: Job) -> Steps:
    return [("load", folder.default_loader), *_named([v2.ToImage()]), *_named(job.pipeline.v2())]


def _named(transforms: Any) -> Steps:
    return [(type(transform).__name__, transform) for transform in getattr(transforms, "transforms", transforms)]


def _measure(reference: str, make: Callable[[Job], Steps], setting: Setting) -> dict[str, Any]:
    found = setting.photos
    job = Job(PIPELINES["train"], found, range(len(found)), min(50, len(found)))
    steps = make(job)
    entries = {reference: "torchvision", "accel, recording only": "cpu"}
    torch.set_num_threads(1)
    with usage.pinned(1) as cores, screen.Bar("recording", len(entries) * setting.rounds) as bar:
        _check(job, steps)
        turns = {name: partial(_round, job, steps, backend) for name, backend in entries.items()}
        rounds = take_turns(turns, setting.rounds, lambda name: bar.advance())
    medians = {name: {step: median(spent[step] for spent in some) for step in some[0]} for name, some in rounds.items()}
    theirs, ours = ([spent["CPU in all"] for spent in rounds[name]] for name in entries)
    return {
        "pipeline": "train",
        "images": len(found),
        "cores": cores,
        "microseconds per image": medians,
        "ratio": ratio(ours, theirs),
        "rounds": rounds,
    }


def _check(job: Job, steps: Steps) -> None:
    """Check that recorded batches have torchvision's values.

    Raises:
        Red: they do not.
    """

    def epoch(seed: int) -> Iterator[Batch]:
        return (batch.to("cpu") for batch in _batches(job, steps, {}, seed))

    plain = Contestant("torchvision", epoch, job.names)
    recorded = Contestant("what accel recorded", epoch, job.names, plain)
    recorded.context = partial(accel.image_backend, "cpu", threads=1)
    for difference in check([plain, recorded]).values():
        raise Red(difference)


def _round(job: Job, steps: Steps, backend: str, seed: int) -> dict[str, float]:
    """Microseconds of CPU for an image, in all and, in an epoch of its own, step by step.

    The other contestant has just had the caches: the first epoch is not counted.
    """
    transforms = [transform for _, transform in steps]
    with accel.image_backend(backend, **({} if backend == "torchvision" else {"threads": 1})):
        spent: dict[str, float] = {}
        for number in range(2):
            spent.clear()
            for _ in _batches(job, steps, spent, seed + number):
                pass
        epochs = [list(job.batches(seed + number)) for number in range(_EPOCHS)]
        begin = time.process_time()
        for batches in epochs:
            for items in batches:
                torch.stack([_through(transforms, path) for path, _ in items])
        spent["CPU in all"] = (time.process_time() - begin) / _EPOCHS
    return {step: 1e6 * seconds / len(job.order) for step, seconds in spent.items()}


def _through(transforms: list[Any], image: Any) -> Any:
    for transform in transforms:
        image = transform(image)
    return image


def _batches(job: Job, steps: Steps, spent: dict[str, float], seed: int) -> Iterator[torch.Tensor]:
    """The epoch, step by step; the seconds each step took are added to ``spent``."""
    for step in [*(name for name, _ in steps), "stack"]:
        spent.setdefault(step, 0.0)
    torch.manual_seed(seed)
    for items in job.batches(seed):
        made = []
        for path, _ in items:
            image: Any = path
            for name, transform in steps:
                begin = time.perf_counter()
                image = transform(image)
                spent[name] += time.perf_counter() - begin
            made.append(image)
        begin = time.perf_counter()
        batch = torch.stack(made)
        spent["stack"] += time.perf_counter() - begin
        yield batch


RECORDING = Workload(
    "recording",
    "submission only: train pipeline on photos recorded, one core",
    partial(_measure, "torchvision v1, PIL", _v1),
)
RECORDING_V2 = Workload(
    "recording_v2",
    "submission only: train pipeline in transforms.v2 after ToImage() on photos recorded, one core",
    partial(_measure, "torchvision v2, ToImage", _v2),
)
