"""Hard use: batches that somebody keeps, sends on, caches, or collates in ways of his own."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import accel
from tests.support import helpers
from tests.support.helpers import Files, assert_same, open_rgb
from tests.support.processes import LARGE, loader, plain

WORKERS = [0, pytest.param(1, marks=pytest.mark.sweep), 2]

VIEWS: list[Callable[[torch.Tensor], Any]] = [
    lambda images: images,
    lambda images: images[1:, :, 5:9],
    lambda images: images.numpy()[0, :, 5:9],
    lambda images: images.data.permute(0, 2, 3, 1)[..., 1],
    lambda images: images.unbind()[1],
    lambda images: images.view(torch.int32)[2],
    lambda images: memoryview(images.numpy().reshape(-1)[7:99]),
    lambda images: np.asarray(images).reshape(-1)[::-1],
    lambda images: torch.from_dlpack(images)[:, 1],
    lambda images: torch.frombuffer(images.numpy(), dtype=torch.float32)[40:],
    lambda images: torch.empty(0, dtype=torch.uint8).set_(images.untyped_storage())[5:99],
    lambda images: copy.copy(images).expand(2, *images.shape)[1],
    lambda images: {"nested": [images[2], (images.real,)]},
    lambda images: pickle.loads(pickle.dumps(images[1:])),
    lambda images: copy.deepcopy(images),
    lambda images: torch.nn.Parameter(images).detach()[0],
    lambda images: images.requires_grad_().detach(),
]


@pytest.mark.parametrize("workers", WORKERS)
def test_what_is_kept_of_batches_stays_what_it_is(paths: list[str], workers: int) -> None:
    """While the batches themselves are dropped, and many more follow."""

    def run() -> list[Any]:
        kept = []
        for number, (images, _) in enumerate(loader(Files(paths * 10, LARGE), workers)):
            kept.append(VIEWS[number % len(VIEWS)](images))
            del images
        return [bytes(each) if isinstance(each, memoryview) else each for each in kept]

    helpers.assert_equal_runs(run)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_an_epoch_kept_whole(paths: list[str], workers: int, persistent: bool) -> None:
    """Over several epochs with early ends in between; the consumer changes what it keeps."""
    accel.set_image_backend("cpu")
    train = loader(Files(paths * 4, LARGE), workers, persistent_workers=persistent and workers > 0)
    expected = plain(lambda: list(loader(Files(paths * 4, LARGE))))
    kept = []
    for epoch in range(3):
        part = []
        for images, labels in train:
            assert workers == 0 or (type(images) is torch.Tensor and images.__dict__ == {})
            part.append([images, labels])
            if epoch == 1 and len(part) == 5:
                break
        assert_same(part, expected[: len(part)])
        for images, _ in part[::2]:
            images += 7
        kept.append(part)
    for part in kept:
        for number, (images, labels) in enumerate(part):
            assert_same([images - 7 if number % 2 == 0 else images, labels], _shifted(expected[number], number))


def _shifted(sample: Any, number: int) -> list[Any]:
    images, labels = sample
    return [images + 7 - 7 if number % 2 == 0 else images, labels]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["queue", "simple", "pipe"])
def test_batches_sent_on(paths: list[str], workers: int, kind: str) -> None:
    """Through torch's queues, while the loader goes on; what was sent comes out at the end."""

    def run() -> list[Any]:
        arrived = []
        if kind == "pipe":
            receiver, sender = torch.multiprocessing.Pipe(duplex=False)
            put, get = sender.send, receiver.recv
        else:
            queue = torch.multiprocessing.Queue() if kind == "queue" else torch.multiprocessing.SimpleQueue()
            put, get = queue.put, queue.get
        count = 0
        for images, labels in loader(Files(paths * 4, LARGE), workers):
            put((images, labels, images[1]))
            del images
            count += 1
        for _ in range(count):
            arrived.append(get())
        return arrived

    assert_same(helpers.run("cpu", run)[0], plain(run))


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("options", [{}, {"batch_size": None}, {"batch_size": 1}], ids=str)
def test_a_dataset_that_caches_tensors(paths: list[str], workers: int, options: dict[str, Any]) -> None:
    order = [0, 0, 1, 2, 0, 1, 5, 5, 5, 11, 0, 2] * 3

    def run() -> list[Any]:
        caching = helpers.Each(paths, cache(lambda path: LARGE(open_rgb(path))))  # it gives the very same tensor again
        train = loader(caching, workers, sampler=order, persistent_workers=workers > 0, **options)
        return [list(train), list(train)]

    assert_same(helpers.run("cpu", run)[0], plain(run))


@dataclass
class Record:
    images: torch.Tensor
    again: Any = None


class Pair(NamedTuple):
    first: torch.Tensor
    second: Any


def _stacked(samples: list[Any]) -> torch.Tensor:
    return torch.stack([image for image, _ in samples])


KEPT: list[torch.Tensor] = []


def _kept_in_the_worker(batch: torch.Tensor) -> Any:
    KEPT.append(batch)
    return batch, KEPT[0], KEPT[len(KEPT) // 2][1:]


COLLATED: dict[str, Callable[[torch.Tensor], Any]] = {
    "tail": lambda batch: batch[1:],
    "one": lambda batch: batch[1],
    "channel": lambda batch: batch[:, 1:2],
    "corner": lambda batch: batch[1, :, 100:, 50:],
    "transposed": lambda batch: batch.permute(0, 2, 3, 1),
    "expanded": lambda batch: batch[:1].expand(3, -1, -1, -1),
    "bits": lambda batch: batch.view(torch.int32)[1:],
    "twice": lambda batch: (batch, batch),
    "with-views": lambda batch: (batch, batch[1:], batch[0], batch),
    "views-only": lambda batch: batch.split(2),
    "reversed": lambda batch: [batch[2], batch[0], batch[1]],
    "dict": lambda batch: {"a": batch, "b": {"c": [batch[1:], None, 3, "text"]}},
    "named": lambda batch: Pair(batch, [batch[1:]]),
    "lists": lambda batch: [[[batch[:, 2]]], (), {}],
    "grad": lambda batch: batch.requires_grad_(),
    "parameter": lambda batch: torch.nn.Parameter(batch),
    "half": lambda batch: batch.half()[1:],
    "numpy": lambda batch: batch.numpy()[1:],
    "empty": lambda batch: (batch[:0], batch),
    "kept": _kept_in_the_worker,
    "dataclass": lambda batch: Record(batch, [batch[1:], {"images": batch}]),
}


@pytest.mark.parametrize("workers", [0, 1])
def test_what_collate_returns(paths: list[str], workers: int) -> None:
    """Three batches of each form, and each batch of another form than the one before."""
    forms = [*COLLATED.values()] * 3

    def collate(samples: list[Any]) -> Any:
        return forms[samples[0][1] // 3](_stacked(samples))

    def run() -> list[Any]:
        KEPT.clear()
        files = Files((paths * 16)[: 3 * len(forms)], LARGE)
        batches = list(loader(files, workers, collate_fn=collate))
        KEPT.clear()
        tensors = [batch for batch in batches if isinstance(batch, torch.Tensor)]
        parts = [vars(batch) if isinstance(batch, Record) else batch for batch in batches]
        return [parts, [(batch.requires_grad, isinstance(batch, torch.nn.Parameter)) for batch in tensors]]

    helpers.assert_equal_runs(run)


@pytest.mark.parametrize("name", ["twice", "with-views", "named"])
def test_tensors_that_share_memory_still_do(paths: list[str], name: str) -> None:
    """A consumer's write into one of them is seen in the others, as with torch."""

    def collate(samples: list[Any]) -> Any:
        return COLLATED[name](_stacked(samples))

    def run() -> list[Any]:
        batches = list(loader(Files(paths, LARGE), 1, collate_fn=collate))
        for batch in batches:
            batch[0][1:] = 5
        return [*batches, [batch[-1] is batch[0] for batch in batches]]

    assert_same(helpers.run("cpu", run)[0], plain(run))
