"""Hard use: loaders that are killed, interrupted, left early, many at once, and nested."""

import gc
import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import accel
from tests.support import helpers
from tests.support.cuda import needs_compiler
from tests.support.helpers import Files, assert_same
from tests.support.processes import LARGE, finished, linux, loader, plain, started

ENDLESS = """
import os, signal, sys, time, torch, accel
from tests.support import helpers
from torch.utils.data import DataLoader
from torchvision import transforms as T
if __name__ == "__main__":
    torch.set_num_threads(1)
    accel.set_image_backend("cpu")
    large = T.Compose([T.Resize((300, 300)), T.ToTensor()])
    files = helpers.Files(sys.argv[1].split(os.pathsep) * 10_000, large)
    iterator = iter(DataLoader(files, batch_size=3, num_workers=2))
    for number, (images, _) in enumerate(iterator):
        if number == 5:
            print("going", flush=True)
            if sys.argv[2] == "kill":
                os.kill(iterator._workers[0].pid, signal.SIGKILL)
"""


@linux
def test_a_killed_worker(paths: list[str]) -> None:
    status, out, err = finished(started(ENDLESS, os.pathsep.join(paths), "kill"))
    assert out == "going\n"
    assert status == 1
    # DataLoader's own error, or torch's where the worker was just handing over a file descriptor
    expected = ("RuntimeError: DataLoader worker (pid", "ConnectionResetError", "EOFError")
    assert any(each in err for each in expected), err


@linux
@pytest.mark.parametrize("whom", ["all", "main"])
def test_an_interrupted_script(paths: list[str], whom: str) -> None:
    """By Ctrl-C, which a terminal sends to the workers as well."""
    process = started(ENDLESS, os.pathsep.join(paths), "wait")
    assert process.stdout is not None
    assert process.stdout.readline() == "going\n"
    (os.killpg if whom == "all" else os.kill)(process.pid, signal.SIGINT)
    status, _, err = finished(process, 30)
    assert status in (-signal.SIGINT, 1, 130)
    assert "KeyboardInterrupt" in err
    assert "accel/" not in err.split("KeyboardInterrupt")[-1]
    with pytest.raises(ProcessLookupError):  # nobody is left
        os.killpg(process.pid, 0)


class Stuck(Files):
    """One image never comes."""

    def __getitem__(self, index: int) -> Any:
        if index == 7:
            time.sleep(1000)
        return super().__getitem__(index)


def test_a_timeout(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """DataLoader's own error, with the batches before it intact."""

    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)  # how long it waits for that worker
    accel.set_image_backend("cpu")
    iterator: Any = iter(loader(Stuck(paths, LARGE), 1, timeout=2))
    batches = [next(iterator), next(iterator)]
    with pytest.raises(RuntimeError, match="DataLoader timed out after 2 seconds"):
        next(iterator)
    iterator._shutdown_workers()
    assert_same(batches, plain(lambda: list(loader(Files(paths[:6], LARGE)))))


@pytest.mark.parametrize("workers", [0, 2])
def test_leaving_with_many_batches_on_their_way(paths: list[str], workers: int) -> None:
    accel.set_image_backend("cpu")
    options = {"prefetch_factor": 10} if workers else {}
    threads = threading.active_count()
    for _ in range(4):
        iterator = iter(loader(Files(paths * 20, LARGE), workers, **options))
        kept = next(iterator)
        del iterator
        gc.collect()
        assert_same(kept, plain(lambda: next(iter(loader(Files(paths, LARGE))))))
        assert threading.active_count() <= threads + os.cpu_count()  # type: ignore[operator]  # the pool's


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_in_the_training_loop(paths: list[str], workers: int) -> None:
    accel.set_image_backend("cpu")

    def train() -> None:
        for images, _ in loader(Files(paths * 5, LARGE), workers):
            _ = images.sum() // 0 / (1 // 0)

    with pytest.raises(ZeroDivisionError):
        train()
    expected = plain(lambda: list(loader(Files(paths, LARGE))))
    assert_same(list(loader(Files(paths, LARGE), workers)), expected)


@pytest.mark.parametrize("on_error", ["raise", "replace"])
@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_over_good_and_corrupt_files(tmp_path: Path, workers: int, on_error: str) -> None:
    """Every good image of an epoch with many broken ones is right; each broken one raises, or is black."""
    broken = {number: helpers.undecodable(60 + 7 * number, 90 - 3 * number) for number in (1, 2, 7, 11)}
    root = helpers.write_image_folder(tmp_path, broken=broken)
    files = [str(path) for path in sorted(root.rglob("*.jpg"), key=lambda path: path.name)]
    dataset = Files(files, LARGE)
    good = plain(lambda: [None if number in broken else dataset[number][0] for number in range(12)])
    with accel.image_backend("cpu", on_error=on_error):
        for size in (1, 3):
            iterator = iter(loader(dataset, workers, batch_size=size))
            for first in range(0, 12, size):
                numbers = range(first, first + size)
                if on_error == "raise" and broken.keys() & numbers:
                    with pytest.raises(accel.DecodeError):
                        next(iterator)[0].sum()
                    continue
                for number, image in zip(numbers, next(iterator)[0].clone(), strict=True):
                    assert_same(image, torch.zeros(3, 300, 300) if good[number] is None else good[number])
            if workers:  # torch takes 10 s for it where the garbage collector finds an iterator that has raised
                iterator._shutdown_workers()


def test_many_loaders_at_once(paths: list[str]) -> None:
    accel.set_image_backend("cpu")
    orders = [paths[first:] + paths[:first] for first in range(6)]
    loaders = [iter(loader(Files(order, LARGE), number % 3, batch_size=2)) for number, order in enumerate(orders)]
    arrived = list(itertools.chain.from_iterable(zip(*loaders, strict=True)))
    expected = plain(
        lambda: list(itertools.chain.from_iterable(zip(*(loader(Files(o, LARGE), batch_size=2) for o in orders))))  # noqa: B905
    )
    assert_same(arrived, expected)


class Nested(IterableDataset[Any]):
    """Goes through a loader of its own, in the worker, and keeps what it gave."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __iter__(self) -> Iterator[Any]:
        kept = []
        for images, _ in DataLoader(Files(self.paths, LARGE), batch_size=2):
            kept.append(images)
            yield images, images[1], kept[0][:, :1], kept[len(kept) // 2]


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.sweep), 2])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_a_loader_inside_an_iterable_dataset(paths: list[str], workers: int, batch_size: int | None) -> None:
    def run() -> Any:
        return list(loader(Nested(paths), workers, batch_size=batch_size))

    assert_same(helpers.run("cpu", run)[0], plain(run))


LEFT = """
import atexit, sys, threading, time
atexit.register(time.sleep, 0.5)
import os, accel
from tests.support import helpers
from torch.utils.data import DataLoader
from torchvision import transforms as T
accel.set_image_backend("cuda", device="cpu")
small = T.Compose([T.Resize((20, 20)), T.ToTensor()])
iterator = iter(DataLoader(helpers.Files(sys.argv[1].split(os.pathsep) * 10_000, small), batch_size=3, num_workers=2))
next(iterator)

def take():
    while True:
        next(iterator)

threading.Thread(target=take, daemon=True).start()
time.sleep(0.2)
print("done")
"""


@linux
@needs_compiler
def test_a_script_ends_while_a_thread_receives_batches(paths: list[str]) -> None:
    """As the pin thread does."""
    status, out, err = finished(started(LEFT, os.pathsep.join(paths)))
    assert (status, out) == (0, "done\n")
    assert "iterator is gone" not in err
