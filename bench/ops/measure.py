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
from accel.cli.costs import take_turns
from accel.cli.error_stats import ErrorStats
from accel.cli.harness import computed, device
from bench.ops.rows import SIZE, Op


class Contestant(NamedTuple):
    """One that takes turns: ``run`` on each of ``inputs``, under a backend (None for none of accel's)."""

    backend: str | None
    inputs: Sequence[Any]
    run: Op


def image_backend(name: str | None) -> AbstractContextManager[Any]:
    """A backend on one thread; ``cuda`` on the GPU if there is one, else with its kernels on the host."""
    on_host: dict[str, Any] = {} if torch.cuda.is_available() else {"device": "cpu"}
    options: dict[str | None, dict[str, Any]] = {"cpu": {"threads": 1}, "cuda": on_host}
    return nullcontext() if name is None else accel.image_backend(name, **options.get(name, {}))


def why_not_cuda() -> str | None:
    """The reason why the cuda backend cannot run here, or None."""
    if not torch.cuda.is_available() and shutil.which("g++") is None:
        return "there is neither a CUDA device nor g++, which compiles its kernels for the host"
    try:
        with image_backend("cuda"):
            return None
    except accel.BackendUnavailable as error:
        return str(error)


def cut(path: str) -> Image.Image:
    """A photo cut to ``SIZE``."""
    height, width = SIZE
    with Image.open(path) as image:
        return F.center_crop(F.resize(image.convert("RGB"), max(SIZE)), [height, width])  # type: ignore[no-any-return]


def saved(images: Sequence[Image.Image], folder: Path) -> list[str]:
    """Save images as JPEG files; return the paths."""
    files = [str(folder / f"{number}.jpg") for number in range(len(images))]
    for image, file in zip(images, files, strict=True):
        image.save(file, "JPEG", quality=90)
    return files


def floats(op: Op, given: Any) -> Any:
    """An op's result on an image or a file, as by ToTensor."""
    made = op(default_loader(given) if isinstance(given, str) else given)
    return made if isinstance(made, torch.Tensor) else F.to_tensor(made)


def difference(make: Callable[[], Op], backend: str, images: Sequence[Any]) -> dict[str, float]:
    """The difference of an op's or a pipeline's values on a backend from torchvision's, for images or files.

    Returns:
        The largest difference in levels of uint8, and the share of values that differ.

    Raises:
        Different: other shapes or dtypes.
    """
    found: dict[str, list[torch.Tensor]] = {}
    target = device() if backend == "cuda" else torch.device("cpu")
    for name in ("torchvision", backend):
        with image_backend(name):
            op = make()
            found[name] = [computed(partial(floats, op, given), seed, target) for seed, given in enumerate(images)]
    stats = ErrorStats(least=0)
    for mine, theirs in zip(found[backend], found["torchvision"], strict=True):
        stats.add(theirs, mine)
    # a level is not quite 1 in float32
    return {"levels": max(math.ceil(stats.largest - 1e-3), 0), "share": stats.share}


def times(contestants: dict[str, Contestant], rounds: int) -> dict[str, list[float]]:
    """CPU seconds for an image, a figure for each round, in which one image is first made unmeasured."""

    def turn(number: int, contestant: Contestant) -> float:
        seconds = []
        with image_backend(contestant.backend):
            for seed, given in [(0, contestant.inputs[0]), *enumerate(contestant.inputs)]:
                torch.manual_seed(1000 * number + seed)
                random.seed(1000 * number + seed)
                begin = time.process_time()
                made = contestant.run(given)
                del made
                seconds.append(time.process_time() - begin)
        return sum(seconds[1:]) / len(contestant.inputs)

    return take_turns({name: partial(turn, contestant=each) for name, each in contestants.items()}, rounds)
