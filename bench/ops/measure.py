"""Differences from torchvision, and CPU time in turns."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from PIL import Image
from torchvision.datasets.folder import default_loader
from torchvision.transforms import functional as F

import accel
from accel.testing import computed
from bench.ops.rows import SIZE, Op


class Difference(NamedTuple):
    """From torchvision's values, in levels of uint8: the largest, and the share of values that differ."""

    levels: int
    share: float


class Contestant(NamedTuple):
    """What takes its turn: under a backend (None: none of accel's), ``run`` on each of ``inputs``."""

    backend: str | None
    inputs: Sequence[Any]
    run: Op

    def open(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.backend is None else image_backend(self.backend)


class Times(NamedTuple):
    """CPU seconds for an image, a figure for each round: the median image's."""

    rounds: list[float]

    @property
    def median(self) -> float:
        return median(self.rounds)

    def rounded(self) -> list[float]:
        return [round(seconds, 7) for seconds in self.rounds]

    def faster_than(self, other: Times) -> float:
        """The median over the rounds of how many times as fast it is."""
        return median(b / a for a, b in zip(self.rounds, other.rounds, strict=True))


def image_backend(name: str) -> AbstractContextManager[Any]:
    """A backend on one thread; ``cuda`` as ``cuda_options`` has it."""
    options: dict[str, Any] = {"cpu": {"threads": 1}, "cuda": cuda_options()}.get(name, {})
    return accel.image_backend(name, **options)


def cuda_options() -> dict[str, Any]:
    """On the GPU where there is one, else its kernels on the host."""
    return {} if torch.cuda.is_available() else {"device": "cpu"}


def why_not_cuda() -> str | None:
    """Why the cuda backend's values cannot be had here."""
    if not torch.cuda.is_available() and shutil.which("g++") is None:
        return "there is neither a CUDA device nor g++, which compiles its kernels for the host"
    try:
        with image_backend("cuda"):
            return None
    except accel.BackendUnavailable as error:
        return str(error)


def cut(path: str) -> Image.Image:
    """A photo of ``SIZE``."""
    height, width = SIZE
    with Image.open(path) as image:
        return F.center_crop(F.resize(image.convert("RGB"), max(SIZE)), [height, width])  # type: ignore[no-any-return]


def saved(images: Sequence[Image.Image], folder: Path) -> list[str]:
    """The images as JPEG files."""
    files = [str(folder / f"{number}.jpg") for number in range(len(images))]
    for image, file in zip(images, files, strict=True):
        image.save(file, "JPEG", quality=90)
    return files


def seeded(number: int) -> None:
    torch.manual_seed(number)
    random.seed(number)


def values(made: Any) -> torch.Tensor:
    """Of a late or plain tensor, on the host, computed by the backend that it is of."""
    late = isinstance(made, torch.Tensor) and type(made) is not torch.Tensor
    plain: torch.Tensor = computed(made) if late else made
    return torch.clone(plain)


def difference(op: Callable[[], Op], backend: str, images: Sequence[Any], *, read: bool = False) -> Difference:
    """Of an op's or a pipeline's values on a backend from torchvision's; ``read``: the images are files."""
    found: dict[str, list[torch.Tensor]] = {}
    for name in ("torchvision", backend):
        with image_backend(name):
            run = op()
            found[name] = []
            for seed, image in enumerate(images):
                seeded(seed)
                made = run(default_loader(image) if read else image)
                found[name].append(values(F.to_tensor(made) if isinstance(made, Image.Image) else made))
    worst, wrong, total = 0, 0, 0
    for mine, theirs in zip(found[backend], found["torchvision"], strict=True):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            raise ValueError(f"{mine.shape} {mine.dtype} instead of {theirs.shape} {theirs.dtype}")
        levels = (mine - theirs).mul(255).abs()
        worst = max(worst, int((levels.max() - 1e-3).ceil()))  # a level is not quite 1 in float32
        wrong, total = wrong + int((levels > 0).sum()), total + levels.numel()
    return Difference(worst, wrong / total)


def times(contestants: dict[str, Contestant], rounds: int) -> dict[str, Times]:
    """Rounds in turns, A B C A B C; in each a contestant makes its first image once before the clock runs."""
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds):
        for name, (_, inputs, run) in contestants.items():
            with contestants[name].open():
                seconds = []
                for seed, given in [(0, inputs[0]), *enumerate(inputs)]:
                    seeded(1000 * number + seed)
                    begin = time.process_time()
                    made = run(given)
                    del made
                    seconds.append(time.process_time() - begin)
                found[name].append(sum(seconds[1:]) / len(inputs))
    return {name: Times(spent) for name, spent in found.items()}
