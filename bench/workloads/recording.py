"""Recording only: the pipeline without its pixels, the part that an accelerator's backend leaves to the host."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import Any

import torch
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import folder
from torchvision.transforms import v2

import accel
from accel.cli import screen
from accel.cli.arguments import Red
from accel.cli.costs import ratio, take_turns
from accel.cli.harness import Contestant, TensorBatch, check
from accel.codec.files import reader
from bench import usage
from bench.pipelines import PIPELINES, Job, Pipeline
from bench.workload import Setting, Workload

_SIZES, _BATCHES = (50, 256), 4  # sizes of batches; the fewest batches of an epoch
_IMAGES = 600  # images of a contestant that are measured in a round, or one epoch
_EPOCHS = 3  # epochs image by image

Step = Callable[[Any], Any]
Steps = dict[str, Step]
"""The steps that a file goes through, by name; the last makes a batch of images."""


def _steps(pipeline: Any, *before: Step) -> Steps:
    named = {type(transform).__name__: transform for transform in (*before, *pipeline.transforms)}
    return {"load": folder.default_loader, **named, "stack": torch.stack}


def _measure(reference: str, make: Callable[[Pipeline], Steps], setting: Setting) -> dict[str, Any]:
    found = setting.photos
    sizes = [size for size in _SIZES if size <= len(found) or len(found) > _SIZES[0]] or [len(found)]
    job = Job(PIPELINES["train"], found, range(len(found)), sizes[0])
    steps = make(job.pipeline)
    _, *recorded, _ = steps.values()
    files, transform = [job.images[index] for index in job.order], transforms.Compose(recorded)
    epochs = {size: _Epochs(files, transform, size) for size in sizes}
    ours = "accel, recording only"
    entries = {reference: "torchvision", ours: "cpu"}
    torch.set_num_threads(1)
    with usage.pinned(1) as cores, screen.Bar("recording", len(entries) * setting.rounds) as bar:
        for batches in (partial(_one_by_one, job, steps), epochs[sizes[0]].batches):
            _check(job, batches)
        turns = {name: partial(_round, job, steps, epochs.values(), backend) for name, backend in entries.items()}
        rounds = take_turns(turns, setting.rounds, lambda name: bar.advance())
    medians = {name: {step: median(spent[step] for spent in some) for step in some[0]} for name, some in rounds.items()}
    by_batch = {}
    for each in epochs.values():
        both = {name: some.pop(each.name) for name, some in medians.items()}
        reading = medians[ours].pop(each.name_of_reading)
        by_batch[str(each.size)] = {**both, "reading": reading, "ratio": _ratio(rounds, entries, each.name)}
    return {
        "pipeline": "train",
        "images": len(found),
        "cores": cores,
        "microseconds per image": medians,
        "ratio": _ratio(rounds, entries, "CPU in all"),
        "by batch": by_batch,
        "rounds": rounds,
    }


def _ratio(rounds: dict[str, list[dict[str, float]]], names: Iterable[str], what: str) -> Any:
    theirs, ours = ([spent[what] for spent in rounds[name]] for name in names)
    return ratio(ours, theirs)


def _check(job: Job, batches: Callable[[int], Iterator[torch.Tensor]]) -> None:
    """Check that recorded batches have torchvision's values.

    Raises:
        Red: they do not.
    """

    def epoch(seed: int) -> Iterator[TensorBatch]:
        torch.manual_seed(seed)
        yield from (batch.to("cpu") for batch in batches(seed))

    plain = Contestant("torchvision", epoch, job.names)
    recorded = Contestant("what accel recorded", epoch, job.names, plain)
    recorded.context = partial(accel.image_backend, "cpu", threads=1)
    for difference in check([plain, recorded]).values():
        raise Red(difference)


def _round(job: Job, steps: Steps, together: Iterable[_Epochs], backend: str, seed: int) -> dict[str, float]:
    """Microseconds of CPU time for an image: in all, by step (in a separate epoch), and by batch.

    The first epoch is not counted, as the processor's caches are the other contestant's.
    """
    with accel.image_backend(backend, **({} if backend == "torchvision" else {"threads": 1})):
        for number in range(2):
            spent = dict.fromkeys(steps, 0.0)
            timed: Steps = {name: partial(_timed, spent, name, step) for name, step in steps.items()}
            for _ in _batches(timed, job.batches(seed + number)):
                pass
        batches = [batch for number in range(_EPOCHS) for batch in job.batches(seed + number)]
        begin = time.process_time()
        for _ in _batches(steps, batches):
            pass
        spent["CPU in all"] = (time.process_time() - begin) / _EPOCHS
        found = {step: 1e6 * seconds / len(job.order) for step, seconds in spent.items()}
        for epochs in together:
            epochs.run(seed, 1)  # which compiles the pipeline
            begin = time.process_time()
            epochs.run(seed)
            found[epochs.name] = 1e6 * (time.process_time() - begin) / epochs.images
            if backend != "torchvision":
                found[epochs.name_of_reading] = 1e6 * _reading(epochs, seed) / epochs.images
    return found


def _reading(epochs: _Epochs, seed: int) -> float:
    """CPU seconds that epochs spend on opening and reading files, in compiled code."""
    spent = [0.0]

    def timed(original: Callable[..., Any]) -> Callable[..., Any]:
        def read(*given: Any) -> Any:
            begin = time.thread_time()
            result = original(*given)
            spent[0] += time.thread_time() - begin
            return result

        return read

    original = reader._read
    try:
        reader._read = timed(original)  # type: ignore[assignment]
        epochs.run(seed)
    finally:
        reader._read = original
    return spent[0]


class _Photos(folder.ImageFolder):  # type: ignore[misc]
    """An ``ImageFolder`` of files in any folders."""

    def __init__(self, files: Sequence[Any], transform: Step) -> None:
        self._files = files
        super().__init__("", transform)

    def find_classes(self, directory: Any) -> tuple[list[str], dict[str, int]]:
        return ["photos"], {"photos": 0}

    def make_dataset(self, *given: Any, **more: Any) -> list[tuple[str, int]]:
        return [(str(file), 0) for file in self._files]


class _Epochs:
    """Epochs of a DataLoader, whose files are repeated if they are few for the size of its batches.

    Attributes:
        count: the number of epochs measured. images: the images of all of them.
    """

    def __init__(self, files: Sequence[Any], transform: Step, size: int) -> None:
        self.size, times = size, -(-_BATCHES * size // len(files)) if len(files) > size else 1
        self._photos = _Photos([*files] * times, transform)
        self.count = max(1, _IMAGES // len(self._photos))
        self.images = self.count * len(self._photos)
        self.name = f"CPU by batches of {size}"
        self.name_of_reading = f"{self.name}: reading"

    def batches(self, seed: int) -> Iterator[torch.Tensor]:
        yield from (images for images, _ in DataLoader(self._photos, self.size))

    def run(self, seed: int, count: int | None = None) -> None:
        for number in range(count or self.count):
            for _ in self.batches(seed + number):
                pass


def _one_by_one(job: Job, steps: Steps, seed: int) -> Iterator[torch.Tensor]:
    return _batches(steps, job.batches(seed))


def _timed(spent: dict[str, float], name: str, step: Step, given: Any) -> Any:
    begin = time.perf_counter()
    made = step(given)
    spent[name] += time.perf_counter() - begin
    return made


def _batches(steps: Steps, batches: Sequence[Sequence[tuple[Any, Any]]]) -> Iterator[torch.Tensor]:
    *transforms, stack = steps.values()
    for items in batches:
        made = []
        for image, _ in items:
            for transform in transforms:
                image = transform(image)
            made.append(image)
        yield stack(made)


RECORDING = Workload(
    "recording",
    "submission only: train pipeline on photos recorded, one core",
    partial(_measure, "torchvision v1, PIL", lambda pipeline: _steps(pipeline.v1())),
)
RECORDING_V2 = Workload(
    "recording_v2",
    "submission only: train pipeline in transforms.v2 after ToImage() on photos recorded, one core",
    partial(_measure, "torchvision v2, ToImage", lambda pipeline: _steps(pipeline.v2(), v2.ToImage())),
)
