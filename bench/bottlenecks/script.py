"""A small training script as data, so that a piece of advice can be applied to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from torch.utils.data import DataLoader, Dataset, Subset

import accel
from bench.bottlenecks import sleeping

LOADER = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory")
"""Keys of a change that are arguments of the DataLoader; others, except ``backend``, are options of the backend."""


class Timed(NamedTuple):
    """Images and seconds of whole epochs except the first, and of the part of each in which all workers have begun."""

    images: int
    seconds: float
    steady_images: int
    steady_seconds: float

    @property
    def rate(self) -> float:
        """Images a second, including how epochs begin and end."""
        return self.images / self.seconds if self.seconds else 0.0

    @property
    def steady(self) -> float:
        """Images a second without that."""
        return self.steady_images / self.steady_seconds if self.steady_seconds else 0.0


@dataclass(frozen=True)
class Script:
    """A training loop.

    Attributes:
        dataset: returns the dataset for a folder of photos; its samples are repeated as needed.
        step: called with each batch.
        batches: the number of batches taken of an epoch; at most 50 in all.
        length: the batches that an epoch has; None for as many as are taken.
        loader: arguments of the DataLoader.
        method: the way to start workers.
        cores: of the simulated machine; None for the real one.
    """

    dataset: Callable[[Path], Dataset[Any]]
    step: Callable[[Any], object]
    batches: int = 24
    length: int | None = 2000
    epochs: int = 1
    batch_size: int = 8
    backend: str = "cpu"
    options: dict[str, Any] = field(default_factory=dict)
    loader: dict[str, Any] = field(default_factory=dict)
    method: str = "fork"
    cores: int | None = None

    def changed(self, change: dict[str, Any]) -> Script:
        """The script with a change applied."""
        arguments = {key: value for key, value in change.items() if key in LOADER}
        options = {key: value for key, value in change.items() if key not in (*LOADER, "backend")}
        backend = change.get("backend", self.backend)
        kept = self.options if backend == self.backend else {}
        return replace(self, backend=backend, options={**kept, **options}, loader={**self.loader, **arguments})

    def run(self, folder: Path) -> Timed:
        """Train under the script's backend."""
        with self.in_force():
            return self.train(folder)

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """A context in which the script's backend is in force."""
        with sleeping.installed(), accel.image_backend(self.backend, **self.options):
            yield

    def train(self, folder: Path) -> Timed:
        """Train under the backend in force."""
        return self._train(self._loader(folder))

    def _loader(self, folder: Path) -> DataLoader[Any]:
        whole = self.dataset(folder)
        count = (self.length or self.batches) * self.batch_size
        data = Subset(whole, [index % len(whole) for index in range(count)])  # type: ignore[arg-type]
        arguments = dict(self.loader)
        if not arguments.get("num_workers"):
            arguments = {key: value for key, value in arguments.items() if key in ("collate_fn", "pin_memory")}
        else:
            arguments["multiprocessing_context"] = self.method
        return DataLoader(data, self.batch_size, **arguments)

    def _train(self, loader: DataLoader[Any]) -> Timed:
        workers = max(loader.num_workers, 1)
        ramp = min(2 * workers, self.batches // 2)  # workers begin one after the other
        until = (
            ramp + max((self.batches - ramp) // workers, 1) * workers
        )  # whole turns of them, as batches come in turns
        images, steady_images, steady, now, begin = 0, 0, 0.0, 0.0, time.perf_counter()
        for epoch in range(self.epochs):
            runs = 0.0
            for number, count in enumerate(self._epoch(loader), 1):
                now = time.perf_counter()
                images += count
                if number == ramp:
                    runs = now
                elif ramp < number <= until:
                    steady_images, steady, runs = steady_images + count, steady + now - runs, now
            if epoch == 0 and self.epochs > 1:  # it includes work done only once: imports, compiling
                images, begin = 0, now
        return Timed(images, now - begin, steady_images, steady)

    def _epoch(self, loader: DataLoader[Any]) -> Iterator[int]:
        """Run an epoch's steps; yield each batch's size. If all batches are taken, the epoch is run to its end."""
        for batch in islice(loader, self.batches if self.length else None):
            self.step(batch)
            yield self.batch_size
