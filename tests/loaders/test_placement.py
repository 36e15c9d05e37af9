"""``placement="auto"``: workers of an accelerator backend compute batches in the time that they would wait."""

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.system import worker_threads
from accel.system.worker_threads import WorkerThreads
from tests.support import helpers, loaders
from tests.support.fake_accelerator import Fake, installed
from tests.support.processes import linux

Choose = Callable[..., None]
PIPELINES = {
    "train": (loaders.TRAIN, True),
    "several sizes": (T.Compose([T.RandomRotation(20), T.RandomResizedCrop(40), T.PILToTensor()]), True),
    "finished by torchvision": (T.Compose([T.RandomCrop(30), T.ToTensor(), T.ColorJitter(0.4, 0.4)]), False),
}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Choose]:
    with installed(monkeypatch) as choose:
        yield choose


def epoch(dataset: Any, wait: float) -> tuple[list[Any], int]:
    """The batches, and how many of them workers computed."""
    before = sum(accel.stats()["worker threads"].values())
    torch.manual_seed(0)
    batches = []
    for images, labels in DataLoader(dataset, 4, shuffle=True, num_workers=1, timeout=60):
        batches.append((images.to("cpu") + 0, labels))
        time.sleep(wait)
    return batches, sum(accel.stats()["worker threads"].values()) - before


@linux
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_values_are_the_same(image_folder: Path, fake: Choose, pipeline: str) -> None:
    transform, is_placed = PIPELINES[pipeline]
    dataset = ConcatDataset([ImageFolder(str(image_folder), transform)] * 8)
    expected, _ = epoch(dataset, 0)
    fake(device="cpu")
    found, placed = epoch(dataset, 0.1)
    helpers.assert_same(found, expected)
    assert placed == 0
    Fake.runs.clear()
    fake(device="cpu", placement="auto")
    found, placed = epoch(dataset, 0.1)
    helpers.assert_same(found, expected)
    assert (placed > 0) == is_placed
    if pipeline == "train":
        assert len({str(names) for names, *_ in Fake.runs}) < len(found)


class Clock:
    """Seconds that pass only as a test says."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Orders:
    """The queue of a worker that is asked for a batch each ``period`` seconds, and made two ahead."""

    def __init__(self, clock: Clock, period: float) -> None:
        self._clock, self._period, self._taken = clock, period, 0

    def _came(self) -> int:
        return 2 + int(self._clock.now / self._period + 1e-9)

    def empty(self) -> bool:
        return self._taken >= self._came()

    def get(self) -> None:
        while self.empty():
            self._clock.now += 0.001
        self._taken += 1


def placed(monkeypatch: pytest.MonkeyPatch, period: float, on_host: float) -> tuple[float, float]:
    """The share of batches that a worker computes, and the mean seconds from batch to batch."""
    clock = Clock()
    orders = Orders(clock, period)
    monkeypatch.setattr(worker_threads, "perf_counter", clock)
    monkeypatch.setattr(worker_threads, "_most", lambda: 1)
    monkeypatch.setattr(worker_threads, "orders", orders)
    own, count = WorkerThreads(), 0
    for _ in range(500):
        orders.get()
        with own.batch():
            clock.now += 0.01
            has_time = own.has_time()
            with own.on_host() if has_time else nullcontext():
                clock.now += on_host * has_time
        count += has_time
    return count / 500, clock.now / 500


@pytest.mark.parametrize(
    ("period", "on_host", "least"),
    [
        (0.01, 0.5, 0.0),  # the workers bind
        (0.5, 0.4, 0.95),
        (0.11, 0.1, 0.95),  # all the time is used
        (0.105, 0.1, 0.6),
        (0.06, 0.1, 0.0),  # it would take longer than from one batch to the next
    ],
)
def test_the_time_that_is_waited_is_used(
    monkeypatch: pytest.MonkeyPatch, period: float, on_host: float, least: float
) -> None:
    share, each = placed(monkeypatch, period, on_host)
    assert share >= least
    assert share <= (1.0 if least else 0.01)
    assert each <= 1.02 * max(period, 0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"placement": "host"}, "placement must be 'device' or 'auto', got 'host'"),
        ({"placement": "auto", "exact": False}, "placement='auto' needs exact=True"),
    ],
)
def test_wrong_options(fake: Choose, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fake(device="cpu", **options)
