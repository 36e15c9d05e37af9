"""Datasets and user code of the planted scripts; all of it can be sent to a spawned worker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset
from torchvision import transforms
from torchvision.datasets import folder

from accel.cli.samples import picture

SIZES = {"tiny": (64, 64), "small": (200, 150), "large": (1600, 1200)}
_EACH = {"tiny": 16, "small": 16, "large": 4}


def write(root: Path, names: Sequence[str] = tuple(SIZES)) -> None:
    """Write photos of these sizes below ``root``."""
    for name in names:
        (root / name).mkdir()
        for number in range(_EACH[name]):
            picture(number, SIZES[name]).save(root / name / f"{number}.jpg", quality=92)


class Photos(Dataset[Any]):
    """Photos of one size.

    Args:
        before: the user's own code, called with a sample's number before it is read.
    """

    def __init__(
        self, root: Path, size: str, transform: Callable[[Any], Any], before: Callable[[int], object] | None = None
    ) -> None:
        self.files = sorted(map(str, (root / size).glob("*.jpg")))
        self.transform, self.before = transform, before

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        if self.before is not None:
            self.before(index)
        return self.transform(folder.default_loader(self.files[index])), index


def photos(
    transform: Callable[[Any], Any], size: str = "small", before: Callable[[int], object] | None = None
) -> Callable[[Path], Dataset[Any]]:
    """The ``dataset`` of a script."""
    return partial(Photos, size=size, transform=transform, before=before)


class Arrays(Dataset[Any]):
    """Arrays of ``size`` bytes, which cost nothing to make."""

    def __init__(self, root: Path, size: int) -> None:
        self.array = np.ones(size, np.uint8)

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return self.array


def pipeline(*more: Callable[[Any], Any], size: int = 64) -> transforms.Compose:
    """Cheap usual transforms: crop, flip, tensor; ``more`` comes before the tensor."""
    crop = transforms.RandomResizedCrop(size)
    return transforms.Compose([crop, transforms.RandomHorizontalFlip(), *more, transforms.ToTensor()])


# -- the user's code ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Burn:
    """Python code that computes for ``ms`` milliseconds of CPU time, and returns its argument."""

    ms: float

    def __call__(self, value: Any) -> Any:
        until = time.thread_time() + self.ms / 1000
        while time.thread_time() < until:
            sum(range(2000))
        return value


@dataclass(frozen=True)
class Wait:
    """A request to a database or over a network: waits for ``ms`` milliseconds."""

    ms: float

    def __call__(self, value: Any) -> Any:
        time.sleep(self.ms / 1000)
        return value


@dataclass(frozen=True)
class Labels:
    """Annotations that are parsed for every sample: a JSON document with this many numbers."""

    numbers: int

    def __call__(self, index: int) -> Any:
        return json.loads(_document(self.numbers))[index % self.numbers]


def _document(numbers: int, made: dict[int, str] = {}) -> str:  # noqa: B006  made once in a process
    if numbers not in made:
        made[numbers] = json.dumps([number / 7 for number in range(numbers)])
    return made[numbers]


def looks_at_pixels(image: Image.Image) -> Image.Image:
    """A user's filter that reads a pixel before the crop, and so needs the whole picture."""
    return image if image.getpixel((0, 0)) is not None else Image.new("RGB", image.size)


class Bursts:
    """Code, called with a sample's number, that takes long for every ``every``-th batch of a worker, else little."""

    def __init__(self, every: int, batch_size: int, ms: float, else_ms: float) -> None:
        self.every, self.batch_size, self.ms, self.else_ms = every, batch_size, ms, else_ms
        self.count = 0

    def __call__(self, index: int) -> None:
        if self.count % self.batch_size == 0:
            slow = self.count // self.batch_size % self.every == self.every - 1
            time.sleep((self.ms if slow else self.else_ms) / 1000)
        self.count += 1


@dataclass(frozen=True)
class Elementwise:
    """Preprocessing by torch's kernels, on torch's number of threads."""

    times: int

    def __call__(self, image: Any) -> Any:
        values = torch.ones(200_000)
        for _ in range(self.times):
            values.add_(1).mul_(0.5)
        return image


@dataclass(frozen=True)
class Threads:
    """A ``worker_init_fn`` that sets torch's number of threads."""

    number: int

    def __call__(self, worker: int) -> None:
        torch.set_num_threads(self.number)


@dataclass(frozen=True)
class Opens:
    """A ``worker_init_fn`` that takes ``ms`` milliseconds, as if to load an index or a model, or to connect."""

    ms: float

    def __call__(self, worker: int) -> None:
        time.sleep(self.ms / 1000)


@dataclass(frozen=True)
class SlowCollate:
    """A collate function that computes for ``ms`` milliseconds of CPU time before the usual."""

    ms: float

    def __call__(self, samples: Sequence[Any]) -> Any:
        return torch.utils.data.default_collate(Burn(self.ms)(samples))


def as_they_are(samples: Sequence[Any]) -> Any:
    """A collate function that does not stack, so that arrays go through the pipe."""
    return list(samples)


class Document:
    """A text that is parsed as it is unpickled."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (self.text,)


def _received(text: str) -> int:
    return len(json.loads(text))


@dataclass(frozen=True)
class AsDocuments:
    """A collate function that returns a document with this many numbers."""

    numbers: int

    def __call__(self, samples: Sequence[Any]) -> Any:
        return Document(_document(self.numbers))
