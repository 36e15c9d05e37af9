"""ImageFolder and DataLoader: the same batches, whatever the workers and the start method."""

import gc
import os
import random
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import ImageFilter
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info
from torch.utils.data._utils.pin_memory import pin_memory
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

import accel
from accel.hooks import torch_profiler
from tests.support import helpers
from tests.support.helpers import Each, Files, Stream, assert_same, is_lazy, open_rgb
from tests.support.loaders import FIXED, TIMEOUT, TRAIN, check, epoch


@pytest.mark.parametrize("loader", [None, open_rgb], ids=["default_loader", "own"])
@pytest.mark.parametrize("workers", [0, 2])
def test_image_folder(image_folder: Path, loader: Any, workers: int) -> None:
    dataset = ImageFolder(str(image_folder), TRAIN, **({"loader": loader} if loader else {}))
    batches = check(dataset, num_workers=workers, shuffle=True)
    assert len(batches) == 3
    with accel.image_backend("cpu"):
        images, labels = epoch(dataset, num_workers=workers)[0]
    assert is_lazy(images) == (workers == 0)
    assert type(labels) is torch.Tensor


@pytest.mark.parametrize("method", ["fork", "spawn", pytest.param("forkserver", marks=pytest.mark.sweep)])
def test_start_methods(paths: list[str], method: str) -> None:
    accel.set_image_backend("cpu")
    workers = 2 if method == "fork" else 1  # others import torch
    options = {"num_workers": workers, "multiprocessing_context": method, "persistent_workers": True}
    before = accel.stats()
    loader: Any = DataLoader(Files(paths, FIXED), batch_size=4, timeout=TIMEOUT, **options)
    epochs = [list(loader), list(loader)]
    computed = accel.stats()["images"] - before["images"]
    del loader
    expected, _ = helpers.run("torchvision", lambda: epoch(Files(paths, FIXED)))
    for batches in epochs:
        assert_same(batches, expected)
    assert computed == 2 * len(paths)


OF_BATCHES: list[dict[str, Any]] = [{"batch_size": None}, {"batch_size": 1}, {"batch_size": 100}, {"pin_memory": False}]
OF_BATCHES += [{"drop_last": True, "batch_size": 5}, {"shuffle": True, "generator": 7}, {"sampler": [3, 1, 1, 11]}]
OF_BATCHES += [{"batch_sampler": [[0], [1, 2, 3], [5, 4]], "batch_size": 1}]
OF_WORKERS: list[dict[str, Any]] = [{"persistent_workers": True, "drop_last": True, "batch_size": 5}]
OF_WORKERS += [{"prefetch_factor": 1, "sampler": [3, 1, 1, 11]}, {"in_order": False, "batch_size": 12}]
OF_WORKERS += [{"shuffle": True, "generator": 7, "pin_memory": False}, *OF_BATCHES[:1], *OF_BATCHES[-1:]]


@pytest.mark.parametrize(
    ("workers", "options"), [*((0, o) for o in OF_BATCHES), *((2, o) for o in OF_WORKERS)], ids=str
)
def test_options_of_the_loader(paths: list[str], workers: int, options: dict[str, Any]) -> None:
    def run() -> list[Any]:
        seeded = {"generator": torch.Generator().manual_seed(7)} if "generator" in options else {}
        return epoch(Files(paths, TRAIN), num_workers=workers, **{**options, **seeded})

    helpers.assert_equal_runs(run)


class Overtaken(Files):
    """The first image comes when the other worker is at its second batch."""

    def __init__(self, paths: list[str], transform: Any, sign: Path) -> None:
        super().__init__(paths, transform)
        self.sign = sign

    def __getitem__(self, index: int) -> Any:
        if index == 6:
            self.sign.touch()
        while index == 0 and not self.sign.exists():
            time.sleep(0.01)
        return super().__getitem__(index)


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.sweep)])
def test_batches_out_of_order(paths: list[str], tmp_path: Path, method: str) -> None:
    options: dict[str, Any] = {"num_workers": 2, "in_order": False, "batch_size": 2, "multiprocessing_context": method}
    expected, _ = helpers.run("torchvision", lambda: epoch(Files(paths, FIXED), batch_size=2))
    found, _ = helpers.run("cpu", lambda: epoch(Overtaken(paths, FIXED, tmp_path / "sign"), **options))
    firsts = [int(labels[0]) for _, labels in found]
    assert firsts != sorted(firsts)
    assert_same(sorted(found, key=lambda batch: int(batch[1][0])), expected)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batch_size", [None, 1, 4])
def test_iterable_datasets(paths: list[str], workers: int, batch_size: int | None) -> None:
    check(Stream(paths, TRAIN), num_workers=workers, batch_size=batch_size)


def keeps_its_batches(samples: list[Any], kept: list[Any] = []) -> Any:  # noqa: B006  a worker's own memory
    """A collate function whose worker looks at its old batches again, and changes them."""
    batch = torch.stack([image for image, _ in samples])
    for old in kept:
        old += 1
    kept.append(batch)
    return batch, len(kept)


def test_a_worker_that_keeps_its_batches(paths: list[str]) -> None:
    """In torch a worker's later change of a batch that it has sent may be seen by the parent: memory is shared.

    What must never happen is that one batch shows another's pixels.
    """
    batches = epoch(Files(paths, FIXED), batch_size=3)
    with accel.image_backend("cpu"):
        arrived = epoch(Files(paths, FIXED), batch_size=3, num_workers=1, collate_fn=keeps_its_batches)
    for (batch, _), (images, _) in zip(arrived, batches, strict=True):
        changes = batch - images
        assert torch.allclose(changes, changes.flatten()[0].expand_as(changes), atol=1e-5)


def asked(path: str) -> Any:
    """Which backend is in force where it is asked, and what opening a file gives."""
    return accel.get_image_backend(), type(open_rgb(path)).__name__, get_worker_info() is not None


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.sweep)])
def test_workers_get_the_backend_in_force_at_iter(paths: list[str], method: str) -> None:
    options: dict[str, Any] = {"batch_size": None, "num_workers": 1, "multiprocessing_context": method}
    loader = DataLoader(Each(paths[:1] * 4, asked), timeout=TIMEOUT, **options)
    with accel.image_backend("cpu"):
        iterator = iter(loader)
    assert accel.get_image_backend() == "torchvision"
    assert [tuple(sample) for sample in iterator] == [("cpu", "LazyPlainImage", True)] * 4
    assert [tuple(sample) for sample in loader] == [("torchvision", "Image", True)] * 4


def test_workers_stay_with_torchvision_in_a_context(paths: list[str]) -> None:
    loader = DataLoader(Each(paths[:1] * 4, asked), batch_size=None, num_workers=1, timeout=TIMEOUT)
    accel.set_image_backend("cpu")
    with accel.image_backend("torchvision"):
        iterator = iter(loader)
    assert [tuple(sample) for sample in iterator] == [("torchvision", "Image", True)] * 4


@pytest.mark.sweep
def test_options_reach_the_workers(paths: list[str]) -> None:
    with accel.image_backend("cpu", decode="pillow"):
        assert_same(
            epoch(Files(paths, FIXED), num_workers=1, multiprocessing_context="spawn"), epoch(Files(paths, FIXED))
        )


@pytest.mark.sweep
def test_the_readme_way_under_spawn(image_folder: Path, tmp_path: Path) -> None:
    """A script that sets the backend under its main guard, as a program of its own."""
    script = tmp_path / "train.py"
    script.write_text(f"""
import torch
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
import accel

if __name__ == "__main__":
    accel.set_image_backend("cpu")
    data = ImageFolder({str(image_folder)!r}, T.Compose([T.RandomResizedCrop(32), T.ToTensor()]))
    torch.manual_seed(0)
    loader = DataLoader(data, 4, shuffle=True, num_workers=1, multiprocessing_context="spawn", timeout={TIMEOUT})
    print(sum(images.double().sum().item() * (i + 1) for i, (images, _) in enumerate(loader)))
    print(accel.stats()["images"])
""")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=200, check=True)
    dataset = ImageFolder(str(image_folder), T.Compose([T.RandomResizedCrop(32), T.ToTensor()]))
    torch.manual_seed(0)
    batches = epoch(dataset, shuffle=True, num_workers=1)
    total = sum(images.double().sum().item() * (number + 1) for number, (images, _) in enumerate(batches))
    assert done.stdout.split() == [str(total), "12"]


def drawn(path: str) -> Any:
    """What a worker's random generators give when a sample has been made."""
    return TRAIN(open_rgb(path)), torch.rand(2), random.random(), np.random.rand()  # noqa: NPY002


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_draw_the_same_numbers(paths: list[str], workers: int) -> None:
    check(Each(paths, drawn), num_workers=workers, shuffle=True)


def seed_worker(number: int, offset: int) -> None:
    torch.manual_seed(number + offset)


def test_a_users_worker_init_fn(paths: list[str]) -> None:
    check(Each(paths, drawn), num_workers=2, worker_init_fn=partial(seed_worker, offset=5))


@pytest.mark.parametrize("workers", [0, 2])
def test_stats_count_images(paths: list[str], workers: int) -> None:
    accel.set_image_backend("cpu")
    before = accel.stats()
    for images, _ in epoch(Files(paths, FIXED), num_workers=workers):
        images.sum()
    after = accel.stats()
    assert after["images"] - before["images"] == len(paths)
    assert after["replaced"] == before["replaced"]
    assert after["computed early"] == before["computed early"]


def test_stats_count_what_falls_back(paths: list[str]) -> None:
    accel.set_image_backend("cpu")
    before = accel.stats()
    own = T.Lambda(lambda image: image.filter(ImageFilter.MedianFilter(3)))
    epoch(Files(paths, T.Compose([T.RandomResizedCrop(40), own, T.ToTensor()])), num_workers=2)
    after = accel.stats()
    assert after["computed early"] - before["computed early"] >= len(paths)
    reasons = [reason for reason, count in after["fallbacks"].items() if count > before["fallbacks"].get(reason, 0)]
    assert any("test_loader.py" in reason for reason in reasons), after["fallbacks"]


def test_stats_keep_apart_any_number_of_reasons() -> None:
    """In a process of its own, which has more reasons to fall back than there are counters."""
    code = """
import accel, io
from PIL import Image
stream = io.BytesIO(); Image.new("RGB", (20, 20)).save(stream, "JPEG")
accel.set_image_backend("cpu")
from accel.system import counters
for number in range(200):
    counters.fallback(f"reason {number}")
for number in range(7):
    Image.open(stream).resize((5, 5)).tobytes()
stats = accel.stats()
assert stats["images"] == 7, stats["images"]
assert stats["computed early"] == 7, stats["computed early"]
assert stats["replaced"] == 0, stats["replaced"]
assert stats["fallbacks"]["reason 0"] == 1
assert sum(stats["fallbacks"].values()) == 207, sum(stats["fallbacks"].values())
assert stats["computed early by"] == {"anybody else": 7}, stats["computed early by"]
counters.images({"one by one: late": 3})
assert accel.stats()["ways"]["any other way"] == 7 + 3, accel.stats()["ways"]
"""
    helpers.python(code)


def resources() -> tuple[int, int]:
    gc.collect()
    return threading.active_count(), len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("leave", [True, False])
def test_epochs_leak_nothing(paths: list[str], workers: int, leave: bool) -> None:
    options: dict[str, Any] = {"num_workers": 1, "timeout": TIMEOUT} if workers else {}

    def once() -> None:
        for images, _ in DataLoader(Files(paths, FIXED), batch_size=2, **options):
            images.sum()
            if leave:
                break

    accel.set_image_backend("cpu")
    once()
    once()
    before = resources()
    for _ in range(6):
        once()
    for _ in range(50):  # a loader's own threads end a moment after it
        threads, files = resources()
        if threads <= before[0] and files <= before[1]:
            break
        time.sleep(0.1)
    assert threads <= before[0]
    assert files <= before[1]


@pytest.mark.parametrize("workers", [0, 1])
def test_the_pin_step(paths: list[str], workers: int) -> None:
    """The pin thread's own function on what a loader gives; pinning itself needs an accelerator."""
    accel.set_image_backend("cpu")
    batches = epoch(Files(paths, FIXED), num_workers=workers)
    expected, _ = helpers.run("torchvision", lambda: epoch(Files(paths, FIXED)))
    if not torch.accelerator.is_available():
        with pytest.raises(RuntimeError):
            pin_memory(expected[0])
        pytest.skip("pinning memory needs an accelerator")
    pinned = [pin_memory(batch) for batch in batches]
    assert all(images.is_pinned() for images, _ in pinned)
    assert_same(pinned, expected)


# -- torch's range around each batch, as its profiler shows it -------------------------------------------------------


RANGE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
LOADER = DataLoader(TensorDataset(torch.arange(9.0)), 2)


class Numbers(IterableDataset[int]):
    def __iter__(self):  # type: ignore[no-untyped-def]
        yield from range(5)


def _ranges() -> list[str]:
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as found:
        assert len(list(LOADER)) == 5
    return [event.name for event in found.events() if event.name == RANGE]


def test_a_profiler_sees_it() -> None:
    expected = _ranges()
    assert expected
    with accel.image_backend("cpu"):
        assert _ranges() == expected


def test_batches_are_the_same() -> None:
    expected = [(batch,) for (batch,) in LOADER]
    counted = []
    with accel.image_backend("cpu"):
        iterator = iter(LOADER)
        for (batch,), (other,) in zip(iterator, expected, strict=True):
            assert torch.equal(batch, other)
            counted.append(iterator._num_yielded)  # type: ignore[attr-defined]
        assert [batch.tolist() for batch in DataLoader(Numbers(), 2)] == [[0, 1], [2, 3], [4]]
    assert counted == [1, 2, 3, 4, 5]


def test_another_torch_is_left_as_it_is() -> None:
    def original(iterator: object) -> str:
        return "torch's"

    changed = torch_profiler._next
    assert changed(original) is not original
    original.__code__ = original.__code__.replace(co_names=("unknown",))
    assert changed(original) is original


def test_a_range_that_is_replaced_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    names = list[str]()

    def counted(name: str) -> Any:
        names.append(name)
        return nullcontext()

    with accel.image_backend("cpu"):
        monkeypatch.setattr("torch.autograd.profiler.record_function", counted)
        assert len(list(LOADER)) == 5
    assert names == [RANGE] * 6


def test_what_a_batch_raises_shows_no_frame_of_accels() -> None:
    with accel.image_backend("cpu"), pytest.raises(IndexError) as error:
        next(iter(DataLoader(LOADER.dataset, sampler=[99])))
    assert not any("torch_profiler" in str(entry.path) for entry in error.traceback)
