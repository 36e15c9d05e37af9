"""The clocks of every stage: each is moved by what should move it, and nothing else changes."""

from __future__ import annotations

import gc
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import pil_loader
from torchvision.transforms import v2

import accel
from accel.profiling import collect, fetching, sampler
from accel.profiling.flow import flow
from accel.profiling.measured import Measured, Process
from accel.runtime import streams
from accel.system import clocks, measuring
from tests.support import helpers
from tests.support.loaders import TRAIN

SLEEP = 0.02
EACH = 12  # images


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return helpers.write_image_folder(tmp_path_factory.mktemp("images"), EACH)


def measured(loader: Any, epochs: int = 1, step: Callable[[Any], object] = lambda batch: None) -> Measured:
    collect.start()
    try:
        for _ in range(epochs):
            for batch in loader:
                step(batch)
    finally:
        result = collect.stop()
    return result


def workers(result: Measured) -> list[Process]:
    return [each for each in result.processes if each.role == "worker"]


def main(result: Measured) -> Process:
    (found,) = [each for each in result.processes if each.role == "main"]
    return found


def seconds(processes: list[Process], stage: str) -> float:
    return sum(each.stages[stage].ns for each in processes if stage in each.stages) / 1e9


class Sleeping(Dataset[Any]):
    """Images of a folder, with naps."""

    def __init__(self, folder: Path, user: float = 0.0, transform: Any = TRAIN) -> None:
        self.files = sorted(folder.rglob("*.jpg"))
        self.user, self.transform = user, transform

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        if self.user:
            time.sleep(self.user)  # the statement
        return self.transform(Image.open(self.files[index]).convert("RGB")), index


def slow_collate(samples: Any) -> Any:
    time.sleep(SLEEP * 4)
    return default_collate(samples)


class SlowTensor:
    """What takes long to be pickled."""

    def __reduce__(self) -> Any:
        time.sleep(SLEEP * 6)
        return SlowTensor, ()


def with_slow_message(samples: Any) -> Any:
    return [*default_collate(samples), SlowTensor()]


def napping(function: Callable[..., Any], nap: float = SLEEP) -> Callable[..., Any]:
    def slow(*args: Any, **kwargs: Any) -> Any:
        time.sleep(nap)
        return function(*args, **kwargs)

    return slow


WORK = ("read", "record", "decode", "transform", "user", "collate", "send")


def assert_moved(processes: list[Process], stage: str, least: float, stages: tuple[str, ...] = WORK) -> None:
    """Most of the time of a planted nap is this stage's, and no other's."""
    spent = {name: seconds(processes, name) for name in stages}
    assert spent.pop(stage) >= least
    assert max(spent.values()) < least, spent


@pytest.mark.parametrize("backend", ["cpu", "torchvision"])
@pytest.mark.parametrize("count", [0, 2])
def test_each_stage_is_moved_by_its_own_work(
    backend: str, count: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(dataset: Dataset[Any], collate: Any = None) -> list[Process]:
        with accel.image_backend(backend):
            loader = DataLoader(dataset, 4, num_workers=count, collate_fn=collate)
            result = measured(loader, step=lambda batch: batch[0].sum().item())
        return workers(result) if count else [main(result)]

    run(Sleeping(folder))  # what is compiled at first use
    assert_moved(run(Sleeping(folder, user=SLEEP)), "user", EACH * SLEEP)
    assert_moved(run(Sleeping(folder), slow_collate), "collate", EACH * SLEEP)
    late = T.Compose([TRAIN, T.Lambda(napping(lambda values: values))])
    assert_moved(run(Sleeping(folder, transform=late)), "user", EACH * SLEEP)
    monkeypatch.setattr(T.Normalize, "forward", napping(T.Normalize.forward))
    assert_moved(run(Sleeping(folder)), "record" if backend == "cpu" else "transform", EACH * SLEEP)
    monkeypatch.undo()
    if count:
        assert_moved(run(Sleeping(folder), with_slow_message), "send", SLEEP * 12)


@pytest.mark.parametrize(
    ("place", "stage", "times"),
    [
        ("os.pread", "read", EACH),
        ("accel.runtime.read.pixels", "decode", EACH),
        ("accel.runtime.compute._run_all", "transform", 3),
    ],
)
def test_stages_of_accel_are_told_apart(
    place: str, stage: str, times: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with accel.image_backend("cpu"):
        loader = DataLoader(Sleeping(folder), 4, num_workers=1)
        measured(loader)
        module, _, name = place.rpartition(".")
        monkeypatch.setattr(place, napping(getattr(sys.modules[module], name)))
        assert_moved(workers(measured(loader)), stage, times * SLEEP)


@pytest.mark.parametrize(
    ("backend", "method"),
    [("cpu", "fork"), ("cpu", "spawn"), ("torchvision", "fork"), ("torchvision", "forkserver")],
)
def test_workers_however_started(backend: str, method: str, folder: Path) -> None:
    with accel.image_backend(backend):
        loader = DataLoader(ImageFolder(str(folder), TRAIN), 4, num_workers=2, multiprocessing_context=method)
        result = measured(loader, epochs=2)
    assert [(each.loader, each.worker, each.images) for each in workers(result)] == [(0, 0, 16), (0, 1, 8)]
    assert all(each.stages["user"].count for each in workers(result))
    assert result.loaders[0].method == method
    assert result.loaders[0].draws
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


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("backend", ["cpu", "torchvision"])
def test_stages_add_up(backend: str, count: int, folder: Path) -> None:
    with accel.image_backend(backend):
        loader = DataLoader(Sleeping(folder, user=0.005), 2, num_workers=count)
        measured(loader)
        result = measured(loader, epochs=2, step=lambda batch: (batch[0].sum(), time.sleep(0.02)))
    for each in result.processes:
        told = sum(spent.ns for spent in each.stages.values()) / 1e9
        sent = seconds([each], "send")  # by a thread of its own, beside the others
        assert each.seconds * 0.98 - 0.002 <= told <= each.seconds * 1.02 + 0.002 + sent, each
        for spent in each.stages.values():
            assert sum(spent.histogram) == spent.count


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


def test_all_is_taken_back(folder: Path) -> None:
    from torch.utils.data._utils.fetch import _MapDatasetFetcher

    def state() -> list[Any]:
        names = (T.Compose.__call__, v2.Compose.forward, T.ToTensor.__call__, _MapDatasetFetcher.fetch)
        return [*names, torch.Tensor.to, Image.Image.load, DataLoader.__iter__, threading.active_count()]

    for inner in ("cpu", "torchvision"):
        before = state()
        collect.start()
        with accel.image_backend(inner):
            list(DataLoader(ImageFolder(str(folder), TRAIN), 4))
        assert T.Compose.__call__ is not before[0]
        collect.stop()
        assert state() == before


def test_what_is_left_when_nobody_measures(folder: Path) -> None:
    """A look at a word of memory for each batch, and for an image nothing."""
    calls: Counter[str] = Counter()

    def count(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename in (clocks.__file__, measuring.__file__):
            calls[frame.f_code.co_name] += 1

    with accel.image_backend("cpu"):
        iterator = iter(DataLoader(ImageFolder(str(folder), TRAIN), 2))
        sys.setprofile(count)
        try:
            for images, _ in iterator:
                images.sum()
        finally:
            sys.setprofile(None)
    assert sum(calls.values()) <= EACH / 2


def test_one_at_a_time() -> None:
    with accel.profile(show=False) as report:
        with pytest.raises(RuntimeError, match="profiled already"), accel.profile(show=False):
            pass
        assert measuring.measuring()
    assert not measuring.measuring()
    assert report.measured.batches == []


def test_an_error_passes_and_is_measured(folder: Path) -> None:
    def fail(batch: Any) -> None:
        raise ZeroDivisionError

    loader = DataLoader(ImageFolder(str(folder), TRAIN), 4)
    with pytest.raises(ZeroDivisionError), accel.profile(show=False) as report:
        list(map(fail, loader))
    assert len(report.measured.batches) == 1
    assert not measuring.measuring()


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


def test_a_fork_in_the_middle_of_a_stage() -> None:
    """The child counts for itself: nothing of what its parent was at."""

    def inside() -> int:
        child = os.fork()
        if child == 0:
            clean = clocks.sums()[0].sum() == 0
            os._exit(0 if clean and measuring.measuring() else 1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    collect.start()
    try:
        assert clocks.timed(clocks.USER, inside)() == 0
        assert clocks.sums()[0][clocks.USER, clocks.NS] > 0
    finally:
        collect.stop()


def test_times_are_own_times() -> None:
    collect.start()
    try:
        inner = clocks.timed(clocks.DECODE, lambda: time.sleep(0.03))
        clocks.timed(clocks.TRANSFORM, lambda: (inner(), inner(), time.sleep(0.01)))()
        with pytest.raises(KeyError):
            clocks.timed(clocks.READ, {}.__getitem__)(1)
        sums = clocks.sums()[0]
        assert sums[clocks.DECODE, clocks.NS] >= 60_000_000
        assert 10_000_000 <= sums[clocks.TRANSFORM, clocks.NS] < 40_000_000
        assert sums[clocks.READ, clocks.COUNT] == 1
        assert clocks.clock().inside > 0
    finally:
        collect.stop()


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("backend", ["cpu", "torchvision"])
def test_fetches_are_divided_as_those_that_were_told_apart(
    backend: str, count: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What most fetches took as a whole comes out as if each stage had been timed in all of them."""
    told: Counter[bool] = Counter()
    begin = fetching.begin_batch

    def noted() -> None:
        begin()
        told[fetching._told] += 1

    late = T.Compose([TRAIN, T.Lambda(napping(lambda values: values, 0.004))])
    monkeypatch.setattr(T.Normalize, "forward", napping(T.Normalize.forward, 0.002))
    with accel.image_backend(backend):
        loader = DataLoader(Sleeping(folder, transform=late), 1, num_workers=count, persistent_workers=count > 0)
        measured(loader)
        monkeypatch.setattr(fetching, "begin_batch", noted)
        result = measured(loader, epochs=5)
    assert told[False] > 2 * told[True] > 20
    (process,) = workers(result) or [main(result)]
    naps = process.stages["user"], process.stages["record" if backend == "cpu" else "transform"]
    assert naps[0].ns / 1e9 > 0.7 * 5 * EACH * 0.004
    assert naps[1].ns / 1e9 > 0.7 * 5 * EACH * 0.002
    assert naps[1].ns < naps[0].ns
    assert process.images == 5 * EACH
    assert process.stages["user"].count == pytest.approx(5 * EACH, rel=0.3)
    for spent in process.stages.values():
        assert sum(spent.histogram) == spent.count


def test_dividing_keeps_the_sum() -> None:
    sums = np.zeros((2, len(clocks.STAGES), clocks.WIDTH), np.int64)
    told = [(100_000, clocks.USER), (300_000, clocks.DECODE)] * 4
    done = [ns << 6 | clocks.TOLD | stage for ns, stage in told]
    done += [500_000 << 6 | clocks.USER, *[800_000 << 6 | clocks.FETCH] * 20]
    clocks.add_up(sums, np.array(done))
    stages = clocks.divided(sums)
    assert stages[:, clocks.NS].sum() == 1_600_000 + 500_000 + 16_000_000
    assert stages[clocks.USER, clocks.NS] == 400_000 + 500_000 + 4_000_000
    assert stages[clocks.DECODE, clocks.NS] == 1_200_000 + 12_000_000
    assert stages[clocks.DECODE, clocks.COUNT] == 44
    assert stages[clocks.DECODE, clocks.HISTOGRAM :].sum() == 44
    assert not stages[clocks.FETCH].any()


def test_what_a_worker_has_not_added_up_is_read() -> None:
    collect.start()
    try:
        measuring.flush()
        for number in range(1, 4):
            clocks.clock().add(clocks.READ, 1000 * number)
            measuring.flush(clocks.now(), add_up=False)
            (row,) = measuring.rows_of()
            assert row.stages[clocks.READ, clocks.COUNT] == number
            assert row.stages[clocks.READ, clocks.NS] == 500 * number * (number + 1)
        for _ in range(measuring._MOST_UNADDED):
            clocks.clock().add(clocks.READ, 1)
        measuring.flush(add_up=False)
        (row,) = measuring.rows_of()
        assert row.stages[clocks.READ, clocks.COUNT] == 3 + measuring._MOST_UNADDED
    finally:
        collect.stop()


def test_threads_that_end_are_not_forgotten() -> None:
    collect.start()
    try:
        for _ in range(3 * clocks._MOST_THREADS):
            thread = threading.Thread(target=clocks.timed(clocks.DECODE, int))
            thread.start()
            thread.join()
        clocks.sums()
        assert len(clocks._threads) < clocks._MOST_THREADS
        assert clocks.sums()[0][clocks.DECODE, clocks.COUNT] == 3 * clocks._MOST_THREADS
    finally:
        collect.stop()


def test_the_hottest_statement(folder: Path) -> None:
    result = measured(DataLoader(Sleeping(folder, user=0.1), 4, num_workers=1))
    found = max((each for each in result.samples if each.process != os.getpid()), key=lambda each: each.count)
    assert (found.file, found.function) == (__file__, "__getitem__")
    assert found.text == "time.sleep(self.user)  # the statement"
    assert found.loading
    hot = measured(DataLoader(Sleeping(folder), 4), step=lambda batch: time.sleep(0.2))
    assert {(each.text, each.loading) for each in hot.samples if each.count > 5} <= {
        ("hot = measured(DataLoader(Sleeping(folder), 4), step=lambda batch: time.sleep(0.2))", False)
    }


def test_batches_and_steps(folder: Path) -> None:
    with accel.image_backend("cpu"):
        loader = DataLoader(ImageFolder(str(folder), TRAIN), 4, num_workers=1)
        result = measured(loader, epochs=2, step=lambda batch: time.sleep(0.05))
    for each in result.batches:
        assert each.bytes == 4 * 3 * 32 * 32 * 4 + 4 * 8
        assert (each.step_ns or 0) >= 50_000_000 > (each.step_cpu_ns or 0) > 0
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


def test_copies_to_a_device(folder: Path) -> None:
    def copy(batch: Any) -> None:
        assert batch[0].to("meta").device.type == "meta"
        assert batch[0].to(torch.float64).dtype == torch.float64
        batch[0].to("cpu")

    result = measured(DataLoader(ImageFolder(str(folder), TRAIN), 4), step=copy)
    assert main(result).stages["copy"].count == 3
    assert all(each.copy_ns for each in result.batches)


class Overriding(torch.Tensor):
    """A tensor that looks methods up by what they are."""

    seen: list[Any] = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


def test_who_overrides_a_method_finds_it() -> None:
    original = torch.Tensor.to
    tensor = torch.ones(2).as_subclass(Overriding)
    collect.start()
    try:
        Overriding.seen.clear()
        assert torch.Tensor.to is not original
        assert torch.equal(tensor.to(torch.float64).as_subclass(torch.Tensor), torch.ones(2, dtype=torch.float64))
    finally:
        collect.stop()
    assert Overriding.seen == [original]


def test_compiled_functions_are_not_disturbed(folder: Path) -> None:
    torch.compiler.reset()
    compiled = torch.compile(lambda images: images.to(torch.float64).mul(2).sum(), backend="eager", fullgraph=True)
    loader = DataLoader(ImageFolder(str(folder), T.Compose([T.Resize((8, 8)), T.ToTensor()])), 4)
    expected = [compiled(images) for images, _ in loader]
    found: list[torch.Tensor] = []
    measured(loader, step=lambda batch: found.append(compiled(batch[0])))
    torch.compiler.reset()
    measured(loader, step=lambda batch: found.append(compiled(batch[0])))
    assert found == 2 * expected
    torch.compiler.reset()


def test_ranges_in_torchs_profiler(folder: Path) -> None:
    def names(loader: Any) -> set[str]:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            for images, _ in loader:
                images.sum()
        return {event.key for event in profiler.key_averages() if event.key.startswith("accel::")}

    loader = DataLoader(ImageFolder(str(folder), TRAIN), 4)
    with accel.image_backend("cpu"):
        before = T.Compose.__call__
        assert names(loader) >= {"accel::read", "accel::plan", "accel::decode", "accel::transform"}
        with accel.profile(show=False) as report:
            assert names(loader) >= {"accel::record", "accel::wait", "accel::decode"}
        assert T.Compose.__call__ is before
    assert report.measured.batches
    assert names(loader) == set()


def test_a_trace(folder: Path) -> None:
    collect.start(trace=True)
    try:
        with accel.image_backend("cpu"):
            list(DataLoader(ImageFolder(str(folder), TRAIN), 4, num_workers=1))
    finally:
        result = collect.stop()
    (worker,) = workers(result)
    decoded = [each for each in result.events if each[2] == "decode" and each[0] == worker.pid]
    assert len(decoded) == EACH
    assert sum(ns for *_, ns in decoded) == pytest.approx(worker.stages["decode"].ns, rel=1e-3)
    assert result.to_dict() == Measured.from_dict(result.to_dict()).to_dict()


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
    assert stages["record"].count == EACH
    assert stages["decode"].count == 3 * EACH


def test_many_epochs_need_few_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.profiling.loading._MANY", 4)
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


def test_random_states_are_left_alone() -> None:
    helpers.seed_everything(1)
    before = helpers.random_states()
    collect.start()
    collect.so_far()
    collect.stop()
    helpers.assert_same(helpers.random_states(), before)
    assert random.random() == pytest.approx(0.13436424411240122)


class Numbers(Dataset[Any]):
    """Samples of next to nothing."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((3, 2, 2), float(index))


def test_functions_that_a_dataset_holds_can_be_sent() -> None:
    held = [Image.open, pil_loader]
    for backend in ("cpu", "torchvision"):
        with accel.image_backend(backend), accel.profile(show=False):
            assert pickle.loads(pickle.dumps(held)) == held
            assert list(map(id, (Image.open, pil_loader))) == list(map(id, held))
        assert not hasattr(Image.open, "__wrapped__")


def test_bodies_in_layers_keep_what_they_wrap() -> None:
    with accel.image_backend("cpu"):
        below = Image.open.__wrapped__  # type: ignore[attr-defined]
        with accel.profile(show=False):
            assert Image.open.__wrapped__ is not below  # type: ignore[attr-defined]
        assert hasattr(Image.open, "__wrapped__")


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
        (2, {"collate_fn": lambda samples: torch.nested.nested_tensor(samples)}, 4),
        (None, {}, 4),
    ],
)
def test_what_is_strange_is_not_asked(batch_size: int | None, options: dict[str, Any], images: int) -> None:
    with accel.profile(show=False) as report:
        for _ in DataLoader(Numbers(4), batch_size, **options):
            pass
    assert sum(batch.images for batch in report.measured.batches) == images


def test_the_sampler_does_not_sleep_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "_HERTZ", 0.001)
    collect.start()
    with sampler.sampler.paused(True):
        pass
    collect.stop()


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
