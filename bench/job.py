"""The task that every contestant of a workload is given: images, a pipeline, and settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from bench.pipelines import Draw, Pipeline, Size


@dataclass(frozen=True)
class Images:
    """The images of an epoch: files, whose contents are in memory or not, or pixels [H, W, 3] uint8."""

    files: Sequence[str] = ()
    pixels: Sequence[npt.NDArray[np.uint8]] = ()
    contents: Sequence[bytes] = ()

    def __len__(self) -> int:
        return len(self.files) or len(self.pixels)

    def __getitem__(self, index: Any) -> Any:
        return (self.contents or self.files or self.pixels)[index]

    def name(self, index: int) -> str:
        """Its name in messages; a file without its folder."""
        return Path(self.files[index]).name if self.files else f"image {index}"


@dataclass(frozen=True)
class Job:
    """A task at its settings.

    Attributes:
        order: which image comes when; an image may come more than once.
        threads: cores this process may use; a contestant has as many threads of its own.
        workers: DataLoader's worker processes, with one thread each; 0: none.
    """

    pipeline: Pipeline
    images: Images
    order: Sequence[int]
    batch_size: int
    threads: int = 1
    workers: int = 0
    _draws: dict[int, list[Draw]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def sizes(self) -> list[Size]:
        """(height, width) of every image, from the files' headers."""
        if self.images.pixels:
            return [(pixels.shape[0], pixels.shape[1]) for pixels in self.images.pixels]
        found = []
        for file in self.images.files:
            with Image.open(file) as image:
                found.append((image.height, image.width))
        return found

    def draws(self, seed: int) -> list[Draw]:
        """torchvision's draws for an epoch's images, in their order, after ``torch.manual_seed(seed)``."""
        if seed not in self._draws:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                self._draws[seed] = [self.pipeline.draw(self.sizes[index]) for index in self.order]
        return self._draws[seed]

    def batches(self, seed: int) -> list[list[tuple[Any, Draw]]]:
        """The epoch as batches of (file or pixels, draw)."""
        items = [(self.images[index], draw) for index, draw in zip(self.order, self.draws(seed), strict=True)]
        return [items[first : first + self.batch_size] for first in range(0, len(items), self.batch_size)]

    def names(self, number: int) -> list[str]:
        """The names of the images of the epoch's batch of that number."""
        first = number * self.batch_size
        return [self.images.name(index) for index in self.order[first : first + self.batch_size]]
