"""How many batches of a DataLoader are under way: when they become more and fewer, and that nothing else changes."""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.codec import store
from accel.hooks import prefetching, tuned, tv_files
from accel.hooks.prefetching import CALM, LOOKED_AT, Depth
from tests.support import helpers
from tests.support.loaders import TIMEOUT, TRAIN
from tests.support.processes import linux

pytestmark = linux
SIZE, PLENTY = 1000, 1 << 40


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of memory that are free."""
    left = [PLENTY]
    monkeypatch.setattr(store, "left", lambda: left[0])
    return left


def begun(least: int = 4, most: int = 16) -> Depth:
    """A depth that has seen its first batches."""
    depth = Depth(least, most)
    for _ in range(LOOKED_AT):
        depth.note(True, True, SIZE)
    assert depth.batches == least
    return depth


def burst(depth: Depth) -> int:
    depth.note(False, True, SIZE)
    depth.note(True, False, SIZE)
    return depth.batches


@pytest.mark.usefixtures("free")
def test_more_while_input_comes_in_bursts_and_fewer_afterwards() -> None:
    depth, before = begun(), accel.stats()["prefetch raised"]
    assert [burst(depth) for _ in range(4)] == [8, 16, 16, 16]
    assert accel.stats()["prefetch raised"] == before + 2
    numbers = []
    for _ in range(3 * CALM):
        depth.note(False, True, SIZE)
        numbers.append(depth.batches)
    assert numbers == [16] * (numbers.count(16)) + [8] * CALM + [4] * numbers.count(4)
    assert numbers.count(16) >= CALM - 1


@pytest.mark.usefixtures("free")
@pytest.mark.parametrize(("waited", "idle"), [(True, False), (False, True)])
def test_workers_that_are_too_slow_and_a_training_that_binds(waited: bool, idle: bool) -> None:
    depth = begun()
    for _ in range(10 * LOOKED_AT):
        depth.note(waited, idle, SIZE)
    assert depth.batches == 4


def test_a_quarter_of_the_free_memory(free: list[int]) -> None:
    depth = begun()
    free[0] = 4 * 8 * SIZE - 1
    assert burst(depth) == 4
    free[0] += 1
    assert burst(depth) == 8
    free[0] = 8 * SIZE - 1
    for _ in range(LOOKED_AT):
        depth.note(False, False, SIZE)
    assert depth.batches == 4


# -- nothing but the moment changes -------------------------------------------------------------------------


@pytest.fixture
def changing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Another depth at every batch; gives the depths."""
    drawn, numbers = random.Random(7), list[int]()

    def note(self: Depth, *_: Any) -> None:
        self.batches = drawn.randint(self.least, 16)
        numbers.append(self.batches)

    monkeypatch.setattr(Depth, "note", note)
    return numbers


def weighted(dataset: Any) -> WeightedRandomSampler:
    return WeightedRandomSampler([1.0 + number for number in range(len(dataset))], 60)


STOCK: dict[str, Any] = {
    "in order": lambda dataset: {},
    "shuffled": lambda dataset: {"shuffle": True, "drop_last": True},
    "many": lambda dataset: {"sampler": RandomSampler(dataset, num_samples=50)},
    "replacement": lambda dataset: {"sampler": RandomSampler(dataset, True, 70)},
    "weighted": lambda dataset: {"sampler": weighted(dataset)},
    "a rank": lambda dataset: {"sampler": DistributedSampler(Subset(dataset, range(10)), 2, 1)},
    "batches": lambda dataset: {"batch_size": 1, "batch_sampler": BatchSampler(RandomSampler(dataset), 2, True)},
}


def training(dataset: Any, options: dict[str, Any], workers: int) -> list[Any]:
    """Two epochs and an early end of a third, by a training that draws."""
    loader: Any = DataLoader(dataset, num_workers=workers, timeout=TIMEOUT, **{"batch_size": 2, **options})
    seen = list[Any]()
    for epoch in range(3):
        for number, batch in enumerate(loader):
            seen.append((batch, torch.rand(1), helpers.random_states()))
            if number == 2 and epoch == 1:
                break
    return seen


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("sampler", STOCK)
def test_a_change_at_every_batch(image_folder: Path, changing: list[int], sampler: str, workers: int) -> None:
    """Values, labels, and the random states of all generators."""
    dataset = ImageFolder(str(image_folder), TRAIN)
    expected = helpers.run("torchvision", lambda: training(dataset, STOCK[sampler](dataset), workers))
    assert not changing
    found = helpers.run("cpu", lambda: training(dataset, STOCK[sampler](dataset), workers))
    helpers.assert_same(found, expected)
    assert len(set(changing)) > 2


class Following(Sampler[int]):
    """A sampler that chooses by what the training has seen so far."""

    def __init__(self) -> None:
        self.seen = 0

    def __iter__(self) -> Iterator[int]:
        return (self.seen % 12 for _ in range(24))

    def __len__(self) -> int:
        return 24


def test_a_sampler_that_reads_the_trainings_state(image_folder: Path, changing: list[int]) -> None:
    dataset = ImageFolder(str(image_folder), TRAIN)

    def run() -> list[Any]:
        sampler, seen = Following(), list[Any]()
        for batch in DataLoader(dataset, 2, sampler=sampler, num_workers=1, timeout=TIMEOUT):
            seen.append(batch)
            sampler.seen += 1
        return seen

    helpers.assert_equal_runs(run)
    assert not changing


class Own(ImageFolder):  # type: ignore[misc]  # torchvision has no types
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)


class OwnBatches(BatchSampler):
    pass


GENERATOR = torch.Generator()
ALONE: dict[str, Any] = {
    "a generator of the script's": lambda dataset: DataLoader(dataset, 4, True, generator=GENERATOR, num_workers=2),
    "another length": lambda dataset: DataLoader(dataset, 4, sampler=RandomSampler([1, 2]), num_workers=2),
    "indices that may change": lambda dataset: DataLoader(dataset, 4, sampler=SubsetRandomSampler([3]), num_workers=2),
    "batches of one's own": lambda dataset: DataLoader(
        dataset, batch_sampler=OwnBatches(SequentialSampler(dataset), 4, False), num_workers=2
    ),
    "no batches": lambda dataset: DataLoader(dataset, None, num_workers=2),
    "persistent": lambda dataset: DataLoader(dataset, 4, num_workers=2, persistent_workers=True),
    "out of order": lambda dataset: DataLoader(dataset, 4, num_workers=2, in_order=False),
    "worker_init_fn": lambda dataset: DataLoader(dataset, 4, num_workers=2, worker_init_fn=print),
    "collate_fn": lambda dataset: DataLoader(dataset, 4, num_workers=2, collate_fn=list),
    "a dataset": lambda dataset: DataLoader(Own(dataset.root, TRAIN), 4, num_workers=2),
    "a step": lambda dataset: DataLoader(
        ImageFolder(dataset.root, T.Compose([T.Lambda(lambda image: image), *TRAIN.transforms])), 4, num_workers=2
    ),
    "labels": lambda dataset: DataLoader(ImageFolder(dataset.root, TRAIN, lambda label: -label), 4, num_workers=2),
    "no workers": lambda dataset: DataLoader(dataset, 4),
}


@pytest.mark.parametrize("which", ALONE)
def test_left_alone(image_folder: Path, which: str) -> None:
    dataset = ImageFolder(str(image_folder), TRAIN)
    with accel.image_backend("cpu"):
        assert prefetching.depth(DataLoader(dataset, 4, num_workers=2), 0) is not None
        assert prefetching.depth(ALONE[which](dataset), 0) is None
    with accel.image_backend("cpu", threads=2):
        assert prefetching.depth(DataLoader(dataset, 4, num_workers=2), 0) is None


# -- going on from a state ----------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", ["auto", 1])
@pytest.mark.parametrize("cut", [1, 4, 5, 8, 10, 11])
def test_a_state_that_was_saved_meanwhile(image_folder: Path, changing: list[int], cut: int, threads: Any) -> None:
    """``threads``: of the run that goes on from it; a number leaves the depth alone."""
    dataset = ImageFolder(str(image_folder), TRAIN)

    def new() -> Any:
        return DataLoader(dataset, 1, shuffle=True, num_workers=2, timeout=TIMEOUT)

    with accel.image_backend("cpu"):
        helpers.seed_everything(3)
        loader, expected, state = new(), list[Any](), dict[str, Any]()
        for number, batch in enumerate(loader, 1):
            if number == cut:
                state = loader.state_dict()
                expected.clear()
            else:
                expected.append(batch)
        expected.append(helpers.random_states())
    assert changing
    with accel.image_backend("cpu", threads=threads):
        loader = new()
        loader.load_state_dict(state)
        helpers.assert_same([*loader, helpers.random_states()], expected)


@pytest.mark.parametrize("found", [2, 7, 16])
def test_a_state_counts_more_than_what_was_found_since(
    image_folder: Path, monkeypatch: pytest.MonkeyPatch, found: int
) -> None:
    """A sampler was asked for as many batches as the state says, whatever a later batch or run has found."""
    dataset = ImageFolder(str(image_folder), TRAIN)
    monkeypatch.setattr(Depth, "note", lambda *_: None)

    def new(batches: int) -> Any:
        monkeypatch.setattr(tuned, "known", lambda _: (batches, SIZE))
        return DataLoader(dataset, 1, sampler=RandomSampler(dataset, True, 60), num_workers=2, timeout=TIMEOUT)

    with accel.image_backend("cpu"):
        loader = new(9)
        iterator = iter(loader)
        for _ in range(4):
            next(iterator)
        state = loader.state_dict()
        assert state["order"]["drawn"] - state["handed"] == 9
        expected = [*iterator]
        loader = new(found)
        loader.load_state_dict(state)
        helpers.assert_same([*loader], expected)


# -- with storage that stalls -------------------------------------------------------------------------------


@pytest.mark.usefixtures("free")
def test_storage_that_stalls(image_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every 8th batch is read only when the training asks for it; of the others, it asks when they are there."""
    numbers = torch.zeros(2, dtype=torch.int64).share_memory_()
    made, asked = numbers
    given, ends = tv_files.opened_together, time.monotonic() + TIMEOUT

    def wait(until: Callable[[], Any]) -> None:
        while not until():
            assert time.monotonic() < ends
            time.sleep(0.01)

    def opened(*arguments: Any) -> Any:
        wait(lambda: made % 8 < 7 or asked > made)
        made.add_(1)
        return given(*arguments)

    monkeypatch.setattr(tv_files, "opened_together", opened)
    dataset = ImageFolder(str(image_folder), TRAIN)
    before, raised = accel.stats()["prefetch raised"], False
    with accel.image_backend("cpu"):
        for number, _ in enumerate(DataLoader(Subset(dataset, [0] * 4000), 4, num_workers=1, timeout=TIMEOUT), 1):
            if raised:
                asked.fill_(1 << 40)
                wait(lambda: made > number + 2)  # noqa: B023  where torch has two under way
                return
            raised = accel.stats()["prefetch raised"] > before
            time.sleep(0.01)
            asked.fill_(number + 1)
    pytest.fail("no more batches are under way")
