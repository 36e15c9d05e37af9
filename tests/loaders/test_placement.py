"""``placement="auto"``: workers of an accelerator backend compute batches in the time that they would wait."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.system import worker_threads
from accel.system.worker_threads import LOOKED_AT, WorkerThreads
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


RECORDING = 0.005


class Simulated:
    """Workers of a loader on a clock that a test moves, and a training that takes their batches in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, workers: int, ahead: int) -> None:
        self.now = 0.0
        self._monkeypatch, self._ahead = monkeypatch, ahead
        monkeypatch.setattr(worker_threads, "perf_counter", lambda: self.now)
        monkeypatch.setattr(worker_threads, "_most", lambda: 1)
        self._events = list[tuple[float, int, Callable[[], object]]]()
        self._numbers = count()
        self._on_way, self._until, self._takes = 0, 0.0, 0.0
        self._own = [WorkerThreads() for _ in range(workers)]
        self._orders: list[Queue[int]] = [Queue() for _ in range(workers)]
        self._made, self._asleep, self._wanted = dict[int, bool](), set[int](), 0
        self.taken = list[tuple[float, bool]]()  # when, and whether a worker had computed it

    def run(self, on_host: float, on_device: float, step: float, batches: int) -> None:
        """Each takes so many seconds of a batch."""
        self._on_device = on_device
        self._seconds = {True: step, False: step + on_device}
        made = [self._makes(number, on_host) for number in range(len(self._own))]
        self._worker = [partial(next, each) for each in made]
        for number in range(self._ahead * len(made)):
            self._orders[number % len(made)].put(number)
        for wakes in self._worker:
            self._later(0.0, wakes)
        while self._events and len(self.taken) < batches:
            self.now, _, do = heappop(self._events)
            do()

    def _later(self, seconds: float, do: Callable[[], object]) -> None:
        heappush(self._events, (self.now + seconds, next(self._numbers), do))

    def _makes(self, number: int, on_host: float) -> Iterator[None]:
        own, orders = self._own[number], self._orders[number]
        while True:
            while orders.empty():
                self._asleep.add(number)
                yield
            batch = orders.get()
            with own.batch():
                self._later(RECORDING, self._worker[number])
                yield
                self._monkeypatch.setattr(worker_threads, "orders", orders)
                placed = own.has_time((self._on_way + 1 / 3) * self._takes + max(self._until - self.now, 0.0))
                self._on_way += not placed
                if placed:
                    with own.on_host(), own.sharing(1):
                        self._later(on_host, self._worker[number])
                        yield
            self._made[batch] = placed
            self._later(0.001, self._take)

    def _take(self) -> None:
        batch = len(self.taken)
        if self._wanted == batch and batch in self._made:
            self.taken.append((self.now, self._made[batch]))
            if not self._made[batch]:
                self._on_way -= 1
                self._until = self.now + self._takes
            number = batch % len(self._own)
            self._orders[number].put(batch + self._ahead * len(self._own))
            if number in self._asleep:
                self._asleep.remove(number)
                self._later(0.0, self._worker[number])
            slow = 1.0 if batch < 4 * LOOKED_AT else 0.0  # as the first steps of a training are
            self._later(self._seconds[self._made[batch]] + slow, self._asks)

    def _asks(self) -> None:
        if not self.taken[-1][1]:
            self._takes = self._on_device
        self._wanted += 1
        self._take()


def simulated(
    monkeypatch: pytest.MonkeyPatch, workers: int, ahead: int, on_host: float, on_device: float, step: float = 0.0
) -> tuple[float, float]:
    """The share of batches that workers compute, and batches a second."""
    loader = Simulated(monkeypatch, workers, ahead)
    loader.run(on_host, on_device, step, 400)
    begun = len(loader.taken) // 2
    seconds = loader.taken[-1][0] - loader.taken[begun][0]
    return sum(placed for _, placed in loader.taken[begun:]) / (len(loader.taken) - begun), (
        len(loader.taken) - 1 - begun
    ) / seconds


@pytest.mark.parametrize("workers", [2, 8])
@pytest.mark.parametrize(
    ("on_device", "ahead", "least"),
    [(0.008, 2, 0.8), (0.032, 2, 0.8), (0.064, 2, 0.75), (0.128, 2, 0.8), (0.064, 4, 0.9), (0.128, 4, 0.75)],
)
def test_the_device_and_the_host_together(
    monkeypatch: pytest.MonkeyPatch, workers: int, on_device: float, ahead: int, least: float
) -> None:
    on_host = 0.035 * workers  # of workers that share the cores
    _, rate = simulated(monkeypatch, workers, ahead, on_host, on_device)
    assert rate >= least * (1 / on_device + workers / (on_host + RECORDING))


@pytest.mark.parametrize(
    ("step", "on_host", "least", "most"),
    [
        (0.0, 0.5, 0.0, 0.01),  # the device is much faster
        (0.5, 0.4, 0.95, 1.0),
        (0.12, 0.1, 0.95, 1.0),
        (0.06, 0.1, 0.0, 0.01),  # it would take longer than from one batch to the next
    ],
)
def test_the_time_that_is_waited_is_used(
    monkeypatch: pytest.MonkeyPatch, step: float, on_host: float, least: float, most: float
) -> None:
    share, rate = simulated(monkeypatch, 1, 2, on_host, 0.01, step)
    assert least <= share <= most
    assert rate >= 0.98 / (step + 0.01)


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
