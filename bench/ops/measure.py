"""Differences from torchvision, and CPU time in turns."""

from __future__ import annotations

import math
import random
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image
from torchvision.datasets.folder import default_loader
from torchvision.transforms import functional as F

import accel
from accel.cli.error_stats import ErrorStats
from accel.cli.harness import take_turns
from accel.testing import computed
from bench.ops.rows import SIZE, Op


class Contestant(NamedTuple):
    """Takes its turn: under a backend (None: none of accel's), ``run`` on each of ``inputs``."""

    backend: str | None
    inputs: Sequence[Any]
    run: Op

    def open(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.backend is None else image_backend(self.backend)


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
    """A tensor's values on the host; a lazy one's are computed by its backend."""
    lazy = isinstance(made, torch.Tensor) and type(made) is not torch.Tensor
    plain: torch.Tensor = computed(made) if lazy else made
    return torch.clone(plain)


def difference(op: Callable[[], Op], backend: str, images: Sequence[Any], *, read: bool = False) -> dict[str, float]:
    """How far an op's or a pipeline's values on a backend are from torchvision's; ``read``: the images are files.

    Returns:
        The largest difference in levels of uint8, and the share of values that differ.

    Raises:
        Different: other shapes or dtypes.
    """
    found: dict[str, list[torch.Tensor]] = {}
    for name in ("torchvision", backend):
        with image_backend(name):
            run = op()
            found[name] = []
            for seed, image in enumerate(images):
                seeded(seed)
                made = run(default_loader(image) if read else image)
                found[name].append(values(F.to_tensor(made) if isinstance(made, Image.Image) else made))
    stats = ErrorStats()
    for mine, theirs in zip(found[backend], found["torchvision"], strict=True):
        stats.add(theirs, mine)
    # a level is not quite 1 in float32
    return {"levels": max(math.ceil(stats.largest - 1e-3), 0), "share": stats.differing / stats.values}


def times(contestants: dict[str, Contestant], rounds: int) -> dict[str, list[float]]:
    """CPU seconds for an image, a figure for each round; first of all in it an image is made off the clock."""

    def turn(number: int, contestant: Contestant) -> float:
        seconds = []
        with contestant.open():
            for seed, given in [(0, contestant.inputs[0]), *enumerate(contestant.inputs)]:
                seeded(1000 * number + seed)
                begin = time.process_time()
                made = contestant.run(given)
                del made
                seconds.append(time.process_time() - begin)
        return sum(seconds[1:]) / len(contestant.inputs)

    return take_turns({name: partial(turn, contestant=each) for name, each in contestants.items()}, rounds)
