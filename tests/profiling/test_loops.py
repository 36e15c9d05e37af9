"""Loops over loaders, and their processes: what is measured of each, however it begins and ends."""

from __future__ import annotations

import atexit
import gc
import gzip
import os
import random
import signal
import subprocess
import sys
import threading
import time
import weakref
import zipfile
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, Dataset, Sampler, TensorDataset, default_collate
from torchvision.datasets import ImageFolder

import accel
from accel.hooks.compiled import program
from accel.profiling import collect
from accel.profiling.flow import flow
from accel.profiling.measured import Measured
from accel.runtime import streams
from accel.system import measuring
from tests.profiling.measure import EACH, Sleeping, main, measured, workers
from tests.support import helpers
from tests.support.loaders import TRAIN


@pytest.mark.parametrize(
    ("backend", "method"),
    [
        ("cpu", "fork"),
        ("cpu", "spawn"),
        ("torchvision", "fork"),
        pytest.param("torchvision", "forkserver", marks=pytest.mark.sweep),
    ],
)
def test_workers_however_started(backend: str, method: str, folder: Path) -> None:
    with accel.image_backend(backend):
        loader = DataLoader(ImageFolder(str(folder), TRAIN), 4, num_workers=2, multiprocessing_context=method)
        result = measured(loader, epochs=2)
    assert [(each.loader, each.worker, each.images) for each in workers(result)] == [(0, 0, 16), (0, 1, 8)]
    stage = "user" if backend == "torchvision" else "record"  # of all samples of a batch together
    assert all(each.stages[stage].count for each in workers(result))
    assert result.loaders[0].method == method
    assert result.loaders[0].draws
    for each in workers(result):  # one of each epoch, whose first batch is done when it has used some CPU time
        assert each.first is not None
        assert each.first.count == 2
        assert 0 < (each.first.cpu_ns or 0) / 1e9 <= (each.cpu_s or 0)
        assert each.before_cpu_s is not None
        assert (each.before_cpu_s > 0.2) == (method != "fork")  # it has imported torch
    assert main(result).before_cpu_s is None
    assert len(result.loaders[0].startup_ns) == len(result.loaders[0].ended_ns) == 2
    assert min(result.loaders[0].ended_ns) > 0
    assert main(result).images == 2 * EACH
    assert [(each.epoch, each.number, each.images) for each in result.batches] == [
        (epoch, number, 4) for epoch in range(2) for number in range(3)
    ]


def test_persistent_workers_from_before(folder: Path) -> None:
    with accel.image_backend("cpu"):
        loader = DataLoader(ImageFolder(str(folder), TRAIN), 4, num_workers=2, persistent_workers=True)
        list(loader)
        result = measured(loader)
        assert [each.images for each in workers(result)] == [8, 4]
        list(loader)  # not measured
        assert [each.images for each in workers(measured(loader))] == [8, 4]
        loader._iterator._shutdown_workers()  # type: ignore[union-attr]


@pytest.mark.parametrize("count", [0, 1])
def test_samples_that_collating_drops_are_not_counted(count: int) -> None:
    given: list[int] = []

    def kept(samples: list[Any]) -> Any:
        return default_collate([each for each in samples if int(each.max()) * 7919 % 97 > 5])

    loader = DataLoader(Numbers(8000), 8, num_workers=count, collate_fn=kept)
    result = measured(loader, step=lambda batch: given.append(len(batch)))
    assert len(set(given)) > 1
    assert [each.images for each in result.batches] == given
    assert main(result).images == sum(given)


def test_nothing_changes(folder: Path) -> None:
    def epoch(profiled: bool, backend: str, count: int) -> Any:
        helpers.seed_everything(3)
        with accel.image_backend(backend):
            loader = DataLoader(ImageFolder(str(folder), TRAIN), 4, shuffle=True, num_workers=count)
            if profiled:
                with accel.profile(show=False, trace=folder.parent / "trace.json"):
                    found = list(loader)
            else:
                found = list(loader)
            return [[images.clone(), labels] for images, labels in found], helpers.random_states()

    for backend in ("cpu", "torchvision"):
        for count in (0, 2):
            helpers.assert_same(epoch(True, backend, count), epoch(False, backend, count))


def test_one_at_a_time() -> None:
    with accel.profile(show=False) as report:
        with pytest.raises(RuntimeError, match="profiled already"), accel.profile(show=False):
            pass
        assert measuring.measuring()
    assert not measuring.measuring()
    assert report.measured.batches == []


def failing(batch: Any) -> None:
    for images, *_ in batch:
        images.sum()
    raise ZeroDivisionError


def test_an_error_passes_and_is_measured(folder: Path) -> None:
    """Also what is computed in the step that it ends."""
    loader = DataLoader(ImageFolder(str(folder), TRAIN), 4)
    with accel.image_backend("cpu"), pytest.raises(ZeroDivisionError), accel.profile(show=False) as report:
        list(map(failing, ([each] for each in loader)))
    assert len(report.measured.batches) == 1
    assert not measuring.measuring()
    process = main(report.measured)
    assert process.stages["decode"].count >= 4
    assert sum(spent.ns for spent in process.stages.values()) / 1e9 <= process.seconds


@pytest.mark.parametrize("count", [0, 1])
def test_an_error_in_the_first_batch_is_reported(count: int, capsys: pytest.CaptureFixture[str]) -> None:
    loader = DataLoader(TensorDataset(torch.zeros(8, 3)), 4, num_workers=count, collate_fn=failing)
    with pytest.raises(ZeroDivisionError), accel.profile() as report:
        list(loader)
    assert report.measured.batches == []
    assert report.stages["wait"]["count"] == 2
    shown = capsys.readouterr().out
    assert "0 batches in" in shown
    assert "it ended with ZeroDivisionError" in shown


def test_a_worker_that_is_killed(folder: Path) -> None:
    def run() -> None:
        iterator = iter(DataLoader(Sleeping(folder, user=0.01), 1, num_workers=2, timeout=30))
        next(iterator)
        os.kill(iterator._workers[0].pid, signal.SIGKILL)  # type: ignore[attr-defined]
        list(iterator)

    profile = accel.profile(show=False)
    with pytest.raises((RuntimeError, OSError)), accel.image_backend("cpu"), profile:
        run()
    assert profile.report.measured.batches
    assert {each.worker for each in workers(profile.report.measured)} <= {0, 1}


def test_batches_and_steps(folder: Path) -> None:
    with accel.image_backend("cpu"):
        loader = DataLoader(ImageFolder(str(folder), TRAIN), 4, num_workers=1)
        result = measured(loader, epochs=2, step=lambda batch: time.sleep(0.05))
    for each in result.batches:
        assert each.bytes == 4 * 3 * 32 * 32 * 4 + 4 * 8
        assert (each.step_ns or 0) >= 50_000_000
    taken = [each.step_cpu_ns for each in result.batches if each.step_cpu_ns is not None]  # of some batches
    assert taken
    assert max(taken) < 50_000_000
    assert min(taken) > 0
    used = [each.cpu_ns for each in result.batches if each.cpu_ns is not None]
    assert len(used) == len(taken)
    assert used == sorted(used)
    assert used[0] > 0
    assert [each.ready for each in result.batches][1] == 2  # the second and third, made while the first was used


class Device:
    """Stands for torch.cuda: an event is complete when the device has nothing left to do."""

    def __init__(self) -> None:
        self.busy_until = 0.0
        self.asked = 0

    def event(self) -> Any:
        return self

    def query(self) -> bool:
        self.asked += 1
        return time.monotonic() >= self.busy_until


def test_whether_the_device_ran_dry(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device()
    monkeypatch.setattr(streams, "mark", device.event)

    def step(busy: float) -> Measured:
        def launch(batch: Any) -> None:
            device.busy_until = time.monotonic() + busy

        return measured(DataLoader(Sleeping(folder, user=0.02), 4), step=launch)

    assert [each.dry for each in step(0.0).batches] == [True] * 3
    assert [each.dry for each in step(10.0).batches][1:] == [False] * 2
    assert device.asked == 6


def test_several_loaders_an_iterable_one_and_early_breaks(folder: Path) -> None:
    paths = [str(path) for path in sorted(folder.rglob("*.jpg"))]
    stream = DataLoader(helpers.Stream(paths, TRAIN), 4, num_workers=2)
    loader = DataLoader(ImageFolder(str(folder), TRAIN), 4, num_workers=1)
    collect.start()
    try:
        with accel.image_backend("cpu"):
            for _ in zip(loader, stream, strict=False):
                pass
            for _ in loader:
                break
    finally:
        result = collect.stop()
    assert [each.num_workers for each in result.loaders] == [1, 2]
    assert {(each.loader, each.epoch) for each in result.batches} == {(0, 0), (1, 0), (0, 1)}
    assert {each.loader for each in workers(result)} == {0, 1}


class Wrapped(DataLoader[Any]):
    """As Accelerate's: it iterates by itself, one batch ahead."""

    def __iter__(self) -> Any:
        iterator = super().__iter__()
        current = next(iterator, None)
        while current is not None:
            following = next(iterator, None)
            yield current
            current = following


def test_loaders_of_others(folder: Path) -> None:
    result = measured(Wrapped(ImageFolder(str(folder), TRAIN), 4), step=lambda batch: time.sleep(0.02))
    assert len(result.batches) == 3
    assert len(result.loaders) == 1


def test_a_backend_that_changes_meanwhile(folder: Path) -> None:
    loader = DataLoader(ImageFolder(str(folder), TRAIN), 6)  # few batches: the stages of all are told apart
    with accel.image_backend("cpu"):
        next(iter(loader))[0].sum()  # what is compared at first use is decoded, too
    collect.start()
    try:
        list(loader)
        with accel.image_backend("cpu"):
            for images, _ in loader:
                images.sum()
        list(loader)
    finally:
        result = collect.stop()
    stages = main(result).stages
    assert stages["record"].count == len(loader)  # batches that are drawn in one go, and nothing that is tried
    assert stages["decode"].count == 3 * EACH


@pytest.mark.parametrize("count", [0, 1])
def test_a_pipeline_is_compiled_once(count: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not anew where clocks are put around the transforms, nor where they are taken back."""
    tried = torch.zeros(1, dtype=torch.int64).share_memory_()
    original = program.Program._try_beside

    def noted(self: Any, transform: Any) -> None:
        tried.add_(1)
        original(self, transform)

    monkeypatch.setattr(program.Program, "_try_beside", noted)
    monkeypatch.setattr(program, "_programs", {})
    with accel.image_backend("cpu"):
        loader = DataLoader(ImageFolder(str(folder), TRAIN), 4, num_workers=count, persistent_workers=count > 0)
        list(loader)
        measured(loader)
        list(loader)
        assert main(measured(loader)).images == EACH
        loader.__dict__.pop("_iterator", None)
    assert tried.item() == 1


def test_many_epochs_need_few_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.profiling.watched._MANY", 4)
    loader = DataLoader(Sleeping(folder, transform=lambda image: 0), 6, num_workers=2)
    epochs = 6
    collect.start()
    try:
        for _ in range(epochs):
            list(loader)
        assert len(measuring.rows_of()) < 6
    finally:
        result = collect.stop()
    assert [each.images for each in workers(result)] == [6 * epochs] * 2


class Numbers(Dataset[Any]):
    """Samples of next to nothing."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((3, 2, 2), float(index))


def test_a_validation_is_no_waiting() -> None:
    training, validation = DataLoader(Numbers(40), 2), DataLoader(Numbers(4), 2)
    collect.start()
    for number, _ in enumerate(training):
        if number % 2:
            for _ in validation:
                time.sleep(0.05)
    result = collect.stop()
    its = flow(result)
    assert its is not None
    assert its.shifted < 25e6  # half of a nap
    assert [batch.step_ns is None for batch in result.batches if batch.loader == 0] == [False, True] * 10


def test_an_epoch_that_was_left() -> None:
    loader = DataLoader(Numbers(40), 2)
    with accel.profile(show=False) as report:
        for number, _ in enumerate(loader):
            if number == 9:
                break
        next(iter(loader))
    assert [batch.step_ns is None for batch in report.measured.batches][:10] == [False] * 9 + [True]


def test_a_dataset_is_not_kept() -> None:
    dataset = Numbers(8)
    alive = weakref.ref(dataset)
    with accel.profile(show=False):
        list(DataLoader(dataset, 2))
    del dataset
    gc.collect()
    assert alive() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_that_leaves_the_block() -> None:
    with accel.profile(show=False) as report:
        parent = os.getpid()
        for number, _ in enumerate(DataLoader(Numbers(40), 2)):
            if number == 4 and not os.fork():
                break
    if os.getpid() != parent:
        os._exit(0)
    os.wait()
    assert report.stages["collate"]["count"] == 20


class Failing(Numbers):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 90:
            raise ZeroDivisionError
        return super().__getitem__(index)


@pytest.mark.parametrize("count", [0, 1])
def test_batches_of_which_little_is_noted(count: int) -> None:
    """Most of them, once there were a few: also where a loop is left, looked at meanwhile, or fails."""
    loader = DataLoader(Numbers(125), 2, num_workers=count, persistent_workers=count > 0)
    collect.start()
    try:
        list(loader)
        for number, _ in enumerate(loader):
            if number == 50:
                assert len(collect.so_far().batches) == 63 + 51
                break
        with pytest.raises(ZeroDivisionError):
            list(DataLoader(Failing(125), 2, num_workers=count))
    finally:
        result = collect.stop()
    numbers = [(0, 0, number) for number in range(63)] + [(0, 1, number) for number in range(51)]
    assert [(each.loader, each.epoch, each.number) for each in result.batches[: len(numbers)]] == numbers
    assert [each.number for each in result.batches if each.loader == 1] == list(range(45))
    assert [each.images for each in result.batches] == [2] * 62 + [1] + [2] * (51 + 45)
    assert main(result).images == 125 + 102 + 90
    assert main(result).stages["wait"].count == len(result.batches) + 3 + 2  # with iter(), an end and an error
    little = [
        (one, other)
        for one, other in zip(result.batches, result.batches[1:], strict=False)
        if one.ready is None and other.number == one.number + 1 and one.step_cpu_ns is None
    ]
    assert len(little) > 0.6 * len(result.batches)
    exact = [other.asked_ns == one.asked_ns + one.wait_ns + (one.step_ns or 0) for one, other in little]
    assert sum(exact) > 0.6 * len(result.batches)
    assert result.failed is not None
    if count:
        assert next(each.images or 0 for each in workers(result)) >= 125 + 102


class Lengthless(Sampler[Any]):
    def __iter__(self) -> Any:
        return iter([[0, 1], [2, 3]])

    def __len__(self) -> int:
        raise ValueError("nobody knows")


class Untouchable(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise ValueError("not yet")

    def __iter__(self) -> Any:
        return iter("ab")

    def __len__(self) -> int:
        return 2


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    ("batch_size", "options", "images"),
    [
        (1, {"batch_sampler": Lengthless()}, 4),
        (2, {"collate_fn": lambda samples: Untouchable()}, 4),
        (2, {"collate_fn": lambda samples: [pack_sequence([each.flatten() for each in samples]), 0]}, 4),
        (2, {"collate_fn": lambda samples: torch.nested.nested_tensor(samples)}, 4),
        (None, {}, 4),
    ],
)
def test_what_is_strange_is_not_asked(batch_size: int | None, options: dict[str, Any], images: int) -> None:
    with accel.profile(show=False) as report:
        for _ in DataLoader(Numbers(4), batch_size, **options):
            pass
    assert sum(batch.images for batch in report.measured.batches) == images


def test_a_worker_that_dies_while_measuring_ends() -> None:
    came = []

    def died(*_: Any) -> None:
        came.append(1)
        raise RuntimeError("a worker died")

    def dying() -> None:
        with collect.undisturbed():
            other = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGCHLD))
            other.start()
            other.join()
            time.sleep(0.01)
            profile.report.fill(collect.stop())

    before = signal.signal(signal.SIGCHLD, died)
    try:
        collect.start()
        profile = accel.profile(show=False)
        with pytest.raises(RuntimeError, match="a worker died"):
            dying()
        assert came
        assert profile.report.measured is not None
        assert signal.getsignal(signal.SIGCHLD) is died
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_the_first_profile_of_a_process_draws_nothing() -> None:
    script = """
import random, sys, accel
state = random.getstate()
assert "rich" not in sys.modules
with accel.profile(show=False):
    pass
assert "rich" in sys.modules and random.getstate() == state
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_random_states_are_left_alone() -> None:
    helpers.seed_everything(1)
    before = helpers.random_states()
    collect.start()
    collect.so_far()
    collect.stop()
    helpers.assert_same(helpers.random_states(), before)
    assert random.random() == pytest.approx(0.13436424411240122)


class Slow(Exception):
    """What torch is at for long when it is sent."""

    def __reduce__(self) -> Any:
        values = torch.ones(500, 500)
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            values = (values @ values).clamp(0, 1)
        return Slow, ()


def leave_behind(folder: Path, worker: int) -> None:
    """What a worker has not written, nor done, when its loop ends."""
    global kept
    files = open(folder / "open", "w"), gzip.open(folder / "zipped", "wt")  # noqa: SIM115
    for file in files:
        file.write(str(worker))
    kept = *files, zipfile.ZipFile(folder / "archive", "w")
    said = folder / "at exit"
    atexit.register(lambda: said.write_text(said.read_text() + " second"))
    atexit.register(said.write_text, "first")


kept: Any = None


def slow_to_send(samples: Any) -> Any:
    return [default_collate(samples), Slow()]


@pytest.mark.parametrize(("backend", "profiled"), [("torchvision", True), ("cpu", True), ("cpu", False)])
def test_a_worker_that_ends_while_it_sends(backend: str, profiled: bool, tmp_path: Path) -> None:
    """A thread that is in torch's C++ when its interpreter ends would end the process by a signal, almost each time."""
    left = partial(leave_behind, tmp_path)
    with accel.image_backend(backend), accel.profile(show=False) if profiled else nullcontext():
        loader = DataLoader(
            Numbers(40), 2, num_workers=1, multiprocessing_context="spawn", collate_fn=slow_to_send, worker_init_fn=left
        )
        iterator = iter(loader)
        next(iterator)
        (worker,) = iterator._workers  # type: ignore[attr-defined]
        iterator._shutdown_workers()  # type: ignore[attr-defined]
    assert worker.exitcode == 0
    assert gzip.decompress((tmp_path / "zipped").read_bytes()) == b"0"
    assert zipfile.is_zipfile(tmp_path / "archive")
    assert {name: (tmp_path / name).read_text() for name in ("open", "at exit")} == {
        "open": "0",
        "at exit": "first second",
    }


def test_a_loader_that_is_new_for_each_epoch() -> None:
    dataset, other = Numbers(8), Numbers(8)
    with accel.profile(show=False) as report:
        for _ in range(3):
            list(DataLoader(dataset, 2))
            iterator = iter(DataLoader(other, 2))
            list(iterator)
        for _ in zip(DataLoader(dataset, 2), DataLoader(dataset, 2), strict=True):
            pass
    found = report.measured
    assert [(each.number, each.renewed, len(each.startup_ns)) for each in found.loaders] == [
        (0, True, 4),
        (1, True, 3),
        (2, False, 1),
    ]
    assert [batch.epoch for batch in found.batches if batch.loader == 1] == [0] * 4 + [1] * 4 + [2] * 4


class Equal(DataLoader[Any]):
    """A loader that has no hash."""

    def __eq__(self, other: object) -> bool:
        return self is other


def test_a_loader_without_a_hash() -> None:
    with accel.profile(show=False) as report:
        for _ in range(2):
            list(Equal(Numbers(8), 2))
    assert len(report.measured.batches) == 8


def test_copies_where_a_default_device_is_set() -> None:
    with accel.profile(show=False) as report, torch.device("cpu"):
        for batch in DataLoader(Numbers(8), 2):
            batch.to("meta")
    assert all(batch.copy_ns for batch in report.measured.batches[:-1])
