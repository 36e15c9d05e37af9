"""Loaders whose states nobody saves are as without accel; and unusual loaders whose states somebody does save."""

import enum
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler
from torchvision.datasets import ImageFolder

import accel
from accel.resuming import batch_record
from bench.resume import cases
from tests.support import helpers
from tests.support.processes import linux

pytestmark = [linux, pytest.mark.filterwarnings("ignore")]  # of loaders with more workers than cores


@pytest.fixture(autouse=True)
def _switched_on() -> Iterator[None]:
    with accel.image_backend("cpu"):
        yield


class Lazily(Mapping[str, int]):
    """A mapping that makes its values as they are asked for."""

    asked = 0

    def __getitem__(self, key: str) -> int:
        Lazily.asked += 1
        return int(torch.randint(9, ()))

    def __iter__(self) -> Iterator[str]:
        return iter("ab")

    def __len__(self) -> int:
        return 2


def test_values_are_not_asked_for() -> None:
    batches = list(DataLoader([Lazily() for _ in range(6)], 2, collate_fn=list))  # type: ignore[arg-type]
    assert Lazily.asked == 0
    assert len(batches) == 3


def test_what_is_noted_is_bounded() -> None:
    """Objects that many samples share are noted once, and of a large one a part."""
    large, node = {number: str(number) for number in range(100_000)}, list[Any]()
    for _ in range(40):
        node = [node, node, {"next": node}]
    samples = [[number, large, node] for number in range(64)]
    assert len(batch_record.noted(samples)) < 200_000
    assert batch_record.noted(samples) == batch_record.noted([[number, dict(large), node] for number in range(64)])
    assert batch_record.noted(samples) != batch_record.noted([[1, large, node], *samples[1:]])


class Equal(DataLoader[Any]):
    def __eq__(self, other: object) -> bool:
        return True


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_without_a_hash(root: Path, workers: int) -> None:
    check(lambda: Equal(ImageFolder(str(root), cases.TRAIN), 4, shuffle=True, num_workers=workers))


def check(make: Any, count: int = 3) -> None:
    """A loop that goes on behind some batches gives what an uninterrupted one gives, in the next epoch as well."""
    cases.seeded(1)
    loader = make()
    batches = iter(loader)
    for _ in range(count):
        next(batches)
    state = loader.state_dict()
    expected = [*batches, *loader]
    resumed = make()
    resumed.load_state_dict(state)
    helpers.assert_same([*resumed, *resumed], expected)


class Named(Dataset[Any]):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: Any) -> Any:
        return torch.rand(3), str(index)


class Names(Sampler[Any]):
    def __init__(self, kind: Any) -> None:
        self.kind, self.colour, self.weight, self.missing = kind, Colour.RED, np.float64(0.5), float("nan")

    def __len__(self) -> int:
        return 20

    def __iter__(self) -> Iterator[Any]:
        return iter([self.kind(number) for number in torch.randperm(20).tolist()])


class Colour(str, enum.Enum):
    RED = "red"


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", [str, lambda number: (number, "x")], ids=["text", "tuple"])
def test_other_indices(kind: Any, workers: int, tmp_path: Path) -> None:
    check(lambda: DataLoader(Named(), 4, sampler=Names(kind), num_workers=workers))
    loader = DataLoader(Named(), 4, sampler=Names(kind))
    next(iter(loader))
    torch.save(loader.state_dict(), tmp_path / "state")  # type: ignore[attr-defined]
    torch.load(tmp_path / "state", weights_only=True)


class Split(Sampler[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(torch.randperm(20).split(4))

    def __len__(self) -> int:
        return 5


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_of_indices_in_tensors(root: Path, workers: int) -> None:
    check(lambda: DataLoader(ImageFolder(str(root), cases.TRAIN), batch_sampler=Split(), num_workers=workers))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_script_that_seeds_each_epoch(root: Path, workers: int) -> None:
    def epoch(loader: Any, number: int) -> list[Any]:
        torch.manual_seed(100 + number)
        return list(loader)

    def made() -> Any:
        return DataLoader(ImageFolder(str(root), cases.TRAIN), 4, shuffle=True, num_workers=workers)

    loader = made()
    epoch(loader, 0)
    state = loader.state_dict()
    expected = epoch(loader, 1)
    resumed = made()
    resumed.load_state_dict(state)
    helpers.assert_same(epoch(resumed, 1), expected)


def test_an_iterator_that_was_there_before(root: Path) -> None:
    """A state is loaded for the next one: as long as this one goes on, it is its place that is saved."""
    loader: Any = DataLoader(ImageFolder(str(root), cases.TRAIN), 4)
    other: Any = DataLoader(ImageFolder(str(root), cases.TRAIN), 4)
    batches, its = iter(loader), iter(other)
    next(its)
    loader.load_state_dict(other.state_dict())
    assert loader.state_dict()["handed"] == 1
    next(batches), next(batches)
    assert loader.state_dict()["handed"] == 2


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(torch.rand(20))


def test_persistent_workers_behind_an_iterable_dataset() -> None:
    loader: Any = DataLoader(Stream(), 4, num_workers=1, persistent_workers=True)
    list(loader)
    with pytest.raises(accel.ResumeError, match="earlier epochs of an iterable dataset"):
        loader.load_state_dict(loader.state_dict())


@pytest.mark.parametrize(
    "damage",
    [
        lambda state: {**state, 5: 1},
        lambda state: {**state, "accel_resume": torch.ones(2)},
        lambda state: {**state, "checksum": np.ones(2)},
        lambda state: {**state, "main": torch.ones(2, dtype=torch.bfloat16)},
        lambda state: {**state, "order": torch.eye(2).to_sparse()},
        lambda state: {**state, "loader": {1: 2, "a": 3}},
        lambda state: {**state, "versions": torch.ones(2, requires_grad=True)},
        lambda state: [*state],
    ],
)
def test_damaged_states(root: Path, damage: Any) -> None:
    loader: Any = DataLoader(ImageFolder(str(root), cases.TRAIN), 4)
    next(iter(loader))
    changed = damage(loader.state_dict())
    try:
        loader.load_state_dict(changed)
    except accel.ResumeError:
        return
    assert isinstance(changed, dict)
    assert 5 in changed  # what others add is left out
