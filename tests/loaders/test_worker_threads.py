"""Threads that compute in DataLoader workers: how many, when they end, and that no bit depends on them."""

import os
import threading
import time
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.runtime.parallel import ParallelFor
from accel.system import cores, worker_threads
from accel.system.worker_threads import LOOKED_AT, Times, enough, share
from tests.support import helpers
from tests.support.loaders import TIMEOUT, TRAIN
from tests.support.processes import linux

ALONE, SHARED = 0.01, 0.08


def times(period: float, threads: int) -> Times:
    """Of a batch on so many threads, if one is taken each ``period`` seconds."""
    busy = ALONE + SHARED / threads
    return Times(max(period - busy, 0.0), ALONE, SHARED)


@pytest.mark.parametrize(
    ("period", "expected"),
    [
        (0.0, 8),  # the next batch is always wanted already
        (0.02, 8),
        (0.0205, 8),  # too short a wait to count
        (0.03, 5),  # 0.01 + 0.08 / 5 = 0.026, where 0.027 are used
        (0.05, 3),
        (0.09, 2),
        (0.101, 1),
        (9.0, 1),
    ],
)
def test_as_many_as_pay(period: float, expected: int) -> None:
    threads, batches, numbers = 8, list[Times](), list[int]()
    for _ in range(10 * LOOKED_AT):
        batches.append(times(period, threads))
        threads = enough(batches[-LOOKED_AT:], threads, 8)
        numbers.append(threads)
    assert numbers[: LOOKED_AT - 1] == [8] * (LOOKED_AT - 1)
    assert set(numbers[LOOKED_AT:]) == {expected}


def test_bursts_keep_all_threads() -> None:
    """Batches that are taken at once, and then none for long: a slower worker would be waited for in the burst."""
    bursts = [*[times(0.0, 8)] * (LOOKED_AT - 1), times(9.0, 8)]
    assert enough(bursts, 8, 8) == 8


def test_more_again_as_soon_as_a_batch_is_waited_for() -> None:
    assert enough([times(9.0, 1)] * LOOKED_AT, 1, 8) == 1
    assert enough([*[times(9.0, 1)] * (LOOKED_AT - 1), times(0.0, 1)], 1, 8) == 8


@pytest.mark.parametrize(
    ("cores", "workers", "threads"),
    [(1, 1, 1), (2, 1, 2), (2, 2, 1), (2, 8, 1), (4, 3, 2), (8, 6, 2), (8, 7, 1), (16, 3, 6), (16, 5, 4), (64, 8, 8)],
)
def test_shares(cores: int, workers: int, threads: int) -> None:
    assert share(cores, workers) == threads


@pytest.fixture
def six_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in forked workers."""
    monkeypatch.setattr(cores, "affinity", lambda process=0: 6)
    monkeypatch.setattr(cores, "machine", lambda: (6, None))


def numbers(dataset: Any, workers: int, backend: str = "cpu", wait: float = 0.0, **options: Any) -> dict[int, int]:
    """Batches of an epoch by the number of threads that computed them."""
    own = {name: options.pop(name) for name in ("threads",) if name in options}
    options = {"batch_size": 4, "timeout": TIMEOUT * (workers > 0), **options}
    before = accel.stats()["worker threads"]
    with accel.image_backend(backend, **own):
        for _ in DataLoader(dataset, num_workers=workers, **options):
            time.sleep(wait)
    after = accel.stats()["worker threads"]
    return {number: count - before.get(number, 0) for number, count in after.items() if count > before.get(number, 0)}


@linux
@pytest.mark.usefixtures("six_cores")
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_a_workers_share_of_the_cores(image_folder: Path) -> None:
    dataset = ImageFolder(str(image_folder), TRAIN)
    assert numbers(dataset, 2) == {3: 3}
    assert numbers(dataset, 4) == {2: 3}
    assert numbers(dataset, 8) == {1: 3}
    assert numbers(dataset, 2, threads=1) == {1: 3}
    assert numbers(dataset, 2, threads=4) == {4: 3}
    assert numbers(dataset, 1, worker_init_fn=own_core) == {1: 3}
    assert numbers(dataset, 0) == {}
    assert numbers(dataset, 2, batch_size=1) == {1: 12}


def own_core(_: int) -> None:
    """As a worker is pinned to a core in ``worker_init_fn``."""
    cores.affinity = lambda process=0: 6 if process else 1


@linux
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.usefixtures("six_cores")
def test_photos_as_well(tmp_path: Path) -> None:
    """Of which threads process a batch in a compiled call each."""
    (tmp_path / "a").mkdir()
    for number in range(8):
        (tmp_path / "a" / f"{number}.jpg").write_bytes(helpers.jpeg(200, 160, seed=number))
    dataset = ImageFolder(str(tmp_path), TRAIN)
    assert numbers(dataset, 2) == {3: 2}
    assert numbers(dataset, 2, threads=1) == {1: 2}
    assert numbers(dataset, 8, batch_size=1) == {1: 8}


@linux
def test_an_interrupt_leaves_the_rest() -> None:
    done = list[int]()

    def work(number: int) -> None:
        done.append(number)
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        time.sleep(0.05)

    with pytest.raises(KeyboardInterrupt):
        ParallelFor(2, "accel-tried").each(range(1000), work)
    time.sleep(0.2)
    assert len(done) < 500


@linux
def test_two_ranks_share_the_cores(image_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "machine", lambda: (2, None))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert numbers(ImageFolder(str(image_folder), TRAIN), 1) == {1: 3}


@linux
def test_a_quota_of_one_core(image_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "affinity", lambda process=0: 2)
    monkeypatch.setattr(cores, "machine", lambda: (2, 1.0))
    assert numbers(ImageFolder(str(image_folder), TRAIN), 1) == {1: 3}


@linux
@pytest.mark.usefixtures("six_cores")
def test_a_training_that_binds_gets_them_back(image_folder: Path) -> None:
    dataset = ImageFolder(str(image_folder), T.Compose([T.Resize((8, 8)), T.ToTensor()]))
    found = numbers(ConcatDataset([dataset] * 8), 1, wait=0.05)
    assert found[4] >= LOOKED_AT  # batches have four images; the first are wanted at once
    assert found[1] > 0


class Seen:
    """A step of the user's that says whether the worker's first thread runs it."""

    def __call__(self, image: Any) -> Any:
        assert threading.current_thread() is threading.main_thread()
        assert torch.get_num_threads() == 1
        return image


PIPELINES = {
    "train": TRAIN,
    "several sizes": T.Compose([T.RandomApply([T.RandomRotation(20)]), T.RandomResizedCrop(40), T.PILToTensor()]),
    "kernels of torchvision's": T.Compose([T.RandomResizedCrop(40), T.ToTensor(), T.ColorJitter(0.4, 0.4, 0.4, 0.1)]),
    "the user's own step": T.Compose([T.RandomCrop(30), Seen(), T.ToTensor(), Seen()]),
}


@linux
@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.usefixtures("six_cores")
def test_a_change_at_every_batch(image_folder: Path, pipeline: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values, labels, and the random states behind them."""

    def run() -> Any:
        loader: Any = DataLoader(WithStates(str(image_folder), PIPELINES[pipeline]), 2, num_workers=1, shuffle=True)
        return [batch for _ in range(2) for batch in loader]

    expected = helpers.run("torchvision", run)
    sequence = cycle([1, 5, 2, 3])
    monkeypatch.setattr(worker_threads, "enough", lambda *_: next(sequence))
    before = accel.stats()["worker threads"]
    found = helpers.run("cpu", run)
    helpers.assert_same(found, expected)
    after = accel.stats()["worker threads"]
    assert {number for number, count in after.items() if count > before.get(number, 0)} >= {1, 2}


class WithStates(ImageFolder):  # type: ignore[misc]  # torchvision has no types
    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return image, label, torch.get_rng_state()


# -- threads and forks --------------------------------------------------------------------------------------


@linux
def test_threads_end_before_a_fork() -> None:
    """And are started again when they are needed, in the child as well."""
    parallel = ParallelFor(3, "accel-tried")

    def names() -> set[str]:
        found, together = set[str](), threading.Barrier(3)

        def work(_: int) -> None:
            together.wait(TIMEOUT)
            found.add(threading.current_thread().name.split("_")[0])

        parallel.each(range(3), work)
        return found

    expected = {threading.current_thread().name.split("_")[0], "accel-tried"}
    assert names() == expected
    if not (child := os.fork()):
        os._exit(0 if names() == expected else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert not any(thread.name.startswith("accel-tried") for thread in threading.enumerate())
    assert names() == expected


@linux
def test_a_fork_does_not_wait_for_threads_at_work() -> None:
    """They might wait for the thread that forks."""
    forked, begun, parallel = threading.Event(), threading.Barrier(3), ParallelFor(2, "accel-tried")

    def work(_: int) -> None:
        begun.wait(TIMEOUT)
        assert forked.wait(TIMEOUT)

    thread = threading.Thread(target=parallel.each, args=(range(2), work))
    thread.start()
    begun.wait(TIMEOUT)
    if not (child := os.fork()):
        done = list[int]()
        parallel.each(range(4), done.append)
        os._exit(0 if sorted(done) == [0, 1, 2, 3] else 1)
    forked.set()
    assert os.waitpid(child, 0)[1] == 0
    thread.join(TIMEOUT)
    assert not thread.is_alive()
