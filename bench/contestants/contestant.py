"""Contestants, and the form that most of them have: a function of one image, in a DataLoader."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import Any, Literal

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.v2 import functional as F

from accel.cli.harness import TensorBatch
from bench.pipelines import Box, Draw, Job, Pipeline, boxes_after

Epoch = Callable[[int], Iterator[TensorBatch]]
"""Returns the batches of an epoch, given its seed."""
Item = tuple[Any, Draw]
"""A file or pixels, and its geometry."""


class Contestant(ABC):
    """One way to make batches: a library, as its own documentation recommends to use it, at its best settings.

    Attributes:
        key: its name on the command line. title: its name in tables.
        distributions: what pip installs for it. modules: the modules that it needs.
        pipelines: the pipelines that it can run.
        own_draws: those of them for which it draws its own random parameters, so that its pixels cannot be compared
            with the reference's one by one.
        follows_seed: whether it runs torchvision's own classes, so that its draws depend on the seed and the number of
            workers; others are given the draws of no workers.
        exact: whether it promises the reference's exact values; if one differs, nothing is reported.
        scales: with "workers" (DataLoader's processes), with its own "threads", or with either.
        settings: the settings chosen, in words.
    """

    key: str
    title: str
    distributions: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    pipelines: frozenset[str]
    own_draws: frozenset[str] = frozenset()
    follows_seed: bool = False
    exact: bool = False
    scales: tuple[Literal["workers", "threads"], ...] = ("workers",)
    settings: str = ""

    def why_not(self) -> str | None:
        """The reason why it cannot run here; None if it can."""
        return missing(self.modules)

    def in_force(self, job: Job) -> AbstractContextManager[Any]:
        """A context that must be entered while an epoch is made, such as an image backend."""
        return nullcontext()

    @abstractmethod
    def open(self, job: Job) -> AbstractContextManager[Epoch]:
        """Build pipelines, start threads, and yield the function that makes an epoch's batches.

        This is not timed. Epochs are run one after the other, each to its end.
        """


def missing(modules: Sequence[str]) -> str | None:
    """The reason why a module cannot be loaded here; None if all can."""
    for module in modules:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a library's warnings about its own code
                import_module(module)
        except ModuleNotFoundError as error:
            return f"not installed: {error.name}"
        except (ImportError, OSError, RuntimeError) as error:
            return f"{module} cannot be loaded: {error}"
    return None


class _Items(Dataset[Any]):
    """A dataset with keys (index, draw), and the sampler of these keys for the epoch that is set."""

    def __init__(self, job: Job, one: Callable[[Any, Draw], Any]) -> None:
        self._job, self._one, self.seed = job, one, 0

    def __getitem__(self, key: tuple[int, Draw]) -> Any:
        return self._one(self._job.images[key[0]], key[1])

    def __len__(self) -> int:
        return len(self._job.order)

    def __iter__(self) -> Iterator[tuple[int, Draw]]:
        return iter(zip(self._job.order, self._job.draws(self.seed), strict=True))


class InLoader(Contestant):
    """A function of one image, and one that makes a batch of the results, in a DataLoader.

    Without workers the two are called in a plain loop: a DataLoader would draw a number from torch's generator,
    and the epoch's crops would differ from those with the same seed elsewhere.
    """

    @abstractmethod
    def one(self, pipeline: Pipeline) -> Callable[[Any, Draw], Any]:
        """The function of a file (or pixels) and its draw, which makes an image."""

    def collate(self, pipeline: Pipeline) -> Callable[[list[Any]], TensorBatch]:
        """The function that makes a batch of results: ``torch.stack``, or a list if sizes differ; with boxes: image,
        boxes, image, boxes ..."""
        if pipeline.boxes:
            return lambda pairs: [tensor for pair in pairs for tensor in pair]
        return list if pipeline.ragged else torch.stack

    def start_worker(self) -> None:
        """Limit the library to one thread; called in every process."""

    @contextmanager
    def open(self, job: Job) -> Iterator[Epoch]:
        one, collate = self.one(job.pipeline), self.collate(job.pipeline)
        loader, items = None, _Items(job, one)
        if job.workers:
            warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores are intended
            loader = DataLoader(
                items,
                job.batch_size,
                sampler=items,
                num_workers=job.workers,
                collate_fn=collate,
                persistent_workers=True,
                multiprocessing_context="fork",
                worker_init_fn=lambda number: self.start_worker(),
            )
        self.start_worker()

        def epoch(seed: int) -> Iterator[TensorBatch]:
            items.seed = seed
            torch.manual_seed(seed)
            if loader is None:
                made = (collate([one(image, draw) for image, draw in batch]) for batch in job.batches(seed))
            yield from map(self.finish, made if loader is None else loader)

        try:
            yield epoch
        finally:
            iterator = None if loader is None else loader._iterator
            if iterator is not None:
                iterator._shutdown_workers()  # type: ignore[attr-defined]

    def finish(self, batch: TensorBatch) -> TensorBatch:
        """Use a batch as the training loop does when it arrives."""
        return batch


def batch(items: Sequence[Any], pipeline: Pipeline) -> TensorBatch:
    """Images [3, H, W] uint8 (with boxes) as a normalised batch [N, 3, H, W] float32, as a list, or unchanged.

    It is the fastest of seven ways in torch and OpenCV that were timed on the CPU: image by image, so that each stays
    in the processor's cache, by copying planes to float, then scaling and shifting them in place.
    """
    if pipeline.mean is None:
        return items
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (pipeline.mean, pipeline.std))
    scale, shift = 1 / (255 * std), -mean / std

    def floats(image: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return out.copy_(image).mul_(scale).add_(shift)

    if pipeline.boxes:
        return [tensor for image, boxes in items for tensor in (floats(image, torch.empty(image.shape)), boxes)]
    made = torch.empty(len(items), *items[0].shape)
    for image, out in zip(items, made, strict=True):
        floats(image, out)
    return made


def transformed(image: torch.Tensor, draw: Draw, pipeline: Pipeline) -> Any:
    """A decoded image, cut to the draw's box already, [3, H, W] uint8, resized, cut and flipped by torch; with
    boxes: these, too."""
    size = image.shape[1], image.shape[2]
    if draw.size is not None:
        image = F.resize(image, list(draw.size), antialias=True)
    if draw.window is not None:
        top, left, height, width = draw.window
        image = image[:, top : top + height, left : left + width]
    image = image.flip(2) if draw.flip else image
    return (image, boxes_after(size, draw)) if pipeline.boxes else image


def planes(image: Any) -> torch.Tensor:
    """An array [H, W, 3] as a tensor [3, H, W] on the same memory."""
    return torch.from_numpy(np.asarray(image)).permute(2, 0, 1)


def part(image: Any, box: Box) -> Any:
    """A box of an image [height, width, ...]."""
    top, left, height, width = box
    return image[top : top + height, left : left + width]
