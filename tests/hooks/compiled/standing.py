"""Many datasets through the same few workers: starting one that is not forked takes seconds, an epoch hardly any time.

The workers stay for all epochs of a loader, and in each they have the next dataset; loop, fetcher and messages are
torch's, as accel has them.
"""

import hashlib
import pickle
import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, _DatasetKind, default_collate, get_worker_info
from torchvision.datasets import ImageFolder

from accel.hooks.compiled import batch, compositions, single
from tests.hooks.compiled import sampled
from tests.hooks.compiled.alone import Own
from tests.hooks.compiled.support import PIPELINES, with_states
from tests.support import helpers

WORKERS = 2
_TIMEOUT = 600


class Case(NamedTuple):
    """A dataset, what it is known by, and the batches that are asked for."""

    about: str
    dataset: Any
    collate: Callable[[list[Any]], Any]
    batches: list[list[int]]


def of_pipelines(root: Path, seeds: int) -> Iterator[Case]:
    """All stock pipelines: in a dataset of torchvision's, and in a user's own, which calls them one by one."""
    for name, make in PIPELINES.items():
        transform = make()
        for seed in range(seeds):
            for dataset in (ImageFolder(str(root), transform), Own(root, transform)):
                rng = random.Random(f"{name} {seed}")
                collate = rng.choice((default_collate, with_states))
                yield Case(f"{name}, seed {seed}, {type(dataset)}", dataset, collate, _batches(dataset, rng))


def of_compositions(roots: list[Path], seeds: range) -> Iterator[Case]:
    """Compositions, datasets and collate functions at random, users' own among them."""
    for seed in seeds:
        rng = random.Random(seed)
        dataset, transform = sampled.dataset(roots[seed % 7 == 6], rng, seed)
        if not isinstance(dataset, IterableDataset):
            yield Case(f"seed {seed}: {transform}", dataset, sampled.collating(rng), _batches(dataset, rng))


def _batches(dataset: Any, rng: random.Random) -> list[list[int]]:
    order, size = rng.sample(range(len(dataset)), len(dataset)), rng.choice((1, 3, 4, 5, 8))
    return [order[first : first + size] for first in range(0, len(order), size)]


class _Cases(Dataset[Any]):
    """What workers have for a dataset, and where they note the random states that each case leaves."""

    def __init__(self, cases: list[Case]) -> None:
        self.cases = cases
        self.states = torch.zeros(len(cases), WORKERS, dtype=torch.int64).share_memory_()

    def __getstate__(self) -> dict[str, Any]:
        """With the cases as bytes: else a descriptor would be sent for each of their tensors, and a fork server takes
        256."""
        return {"cases": pickle.dumps(self.cases), "states": self.states}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.cases, self.states = pickle.loads(state["cases"]), state["states"]


class _Epoch:
    """The batches of a loader's next epoch."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)


def _begin(worker: int) -> None:
    """In a worker: each fetcher that its loop makes, at every epoch's beginning, is one of the next case."""
    warnings.simplefilter("ignore")  # a forked worker has pytest's filters, others have none
    batch.FEW, single.FIRST, compositions.AGAIN, compositions._RESTLESS = 1, 0, 0, 1000
    held: Any = get_worker_info()
    cases, states = held.dataset.cases, held.dataset.states
    original, following = _DatasetKind.create_fetcher, iter([*enumerate(cases), (len(cases), None)])

    def create_fetcher(*_: Any) -> Any:
        number, case = next(following)
        if number:  # the first has the seeds that torch gives to workers
            digest = hashlib.sha256(repr(helpers.random_states()).encode()).digest()
            states[number - 1, worker] = int.from_bytes(digest[:7], "big")
            helpers.seed_everything(WORKERS * number + worker)
        if case is None:
            return None
        return original(_DatasetKind.Map, case.dataset, True, case.collate, False)

    _DatasetKind.create_fetcher = staticmethod(create_fetcher)  # type: ignore[method-assign]


def run(cases: list[Case], method: str) -> Iterator[Any]:
    """What each case gives: its batches, and the kind of error that it ends in; at the end the random states."""
    dataset, epoch = _Cases(cases), _Epoch()
    helpers.seed_everything(len(cases))
    loader = DataLoader(
        dataset,
        batch_sampler=epoch,  # type: ignore[arg-type]
        num_workers=WORKERS,
        persistent_workers=True,
        multiprocessing_context=method,
        worker_init_fn=_begin,
        timeout=_TIMEOUT,
    )
    try:
        for case in cases:
            epoch.batches, found = case.batches, list[Any]()
            ended = helpers.attempt(lambda: found.extend(loader))  # noqa: B023
            yield found, ended and ended[0]
        epoch.batches = []
        list(loader)
    finally:
        if loader._iterator is not None:
            loader._iterator._shutdown_workers()  # type: ignore[attr-defined]
    yield dataset.states
