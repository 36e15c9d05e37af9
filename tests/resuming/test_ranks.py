"""Another number of ranks: no sample of the epoch is lost or repeated."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader, DistributedSampler, Subset
from torchvision.datasets import ImageFolder

import accel
from bench.resume import cases
from tests.support import helpers


def loaders(root: Path, ranks: int, count: int, workers: int) -> list[Any]:
    files = sorted(map(str, root.rglob("*.jpg")))
    dataset = Subset(helpers.Files(files, cases.TRAIN), range(count))
    samplers = [DistributedSampler(dataset, ranks, rank, seed=3) for rank in range(ranks)]
    return [DataLoader(dataset, 2, sampler=sampler, num_workers=workers) for sampler in samplers]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("before", "after", "count"), [(2, 1, 24), (2, 4, 24), (3, 2, 24), (2, 3, 25)])
def test_no_sample_is_lost(
    root: Path, before: int, after: int, count: int, workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    accel.set_image_backend("cpu")
    seen: Counter[int] = Counter()
    states = []
    for loader in loaders(root, before, count, workers):
        batches = iter(loader)
        for _ in range(3):
            seen.update(next(batches)[1].tolist())
        states.append(loader.state_dict())
    resumed = loaders(root, after, count, workers)
    for loader in resumed:
        loader.load_state_dict(states[0])
        batches = iter(loader)
        seen.update(next(batches)[1].tolist())
        assert "another number of ranks" in loader.state_dict()["refused"]
        for _, numbers in batches:
            seen.update(numbers.tolist())
        assert len(list(loader)) == len(loader), "the next epoch is whole"
    assert set(seen) == set(range(count))
    left = count - 6 * before
    assert sum(seen.values()) - count == -left % after, "repeated as at an epoch's end"
    assert "goes on with another number of ranks" in caplog.text


def test_another_seed(root: Path) -> None:
    accel.set_image_backend("cpu")
    dataset = ImageFolder(str(root), cases.TRAIN)
    loader: Any = DataLoader(dataset, 2, sampler=DistributedSampler(dataset, 2, 0, seed=1))
    batches = iter(loader)
    next(batches)
    other: Any = DataLoader(dataset, 2, sampler=DistributedSampler(dataset, 1, 0, seed=2))
    other.load_state_dict(loader.state_dict())
    with pytest.raises(accel.ResumeError, match=r"sampler\.seed was 1 and is 2"):
        iter(other)
