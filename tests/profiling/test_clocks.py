"""The clocks of every stage: each is moved by what should move it, and nothing else changes."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import pil_loader
from torchvision.transforms import v2

import accel
from accel.profiling import collect, sampler
from accel.profiling.measured import Process
from accel.runtime import read
from accel.system.timing import clocks, measuring
from tests.profiling.measure import EACH, Sleeping, main, measured, workers
from tests.support.loaders import TRAIN

SLEEP = 0.02
LOOK = sampler.sampler._note


def seconds(processes: list[Process], stage: str) -> float:
    return sum(each.stages[stage].ns for each in processes if stage in each.stages) / 1e9


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
    backend: str, count: int, folder: Path, monkeypatch: pytest.MonkeyPatch, slept: None
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


@pytest.mark.parametrize(
    ("place", "stage", "times"),
    [
        ("os.pread", "read", EACH),
        ("accel.runtime.read.pixels", "decode", EACH),
        ("accel.runtime.compute.on_host", "transform", 3),
    ],
)
def test_stages_of_accel_are_told_apart(
    place: str, stage: str, times: int, folder: Path, monkeypatch: pytest.MonkeyPatch, slept: None
) -> None:
    with accel.image_backend("cpu"):
        loader = DataLoader(Sleeping(folder), 4, num_workers=1)
        measured(loader)
        module, _, name = place.rpartition(".")
        monkeypatch.setattr(read, "only_decodes", lambda source: False)  # compiled code would decode
        monkeypatch.setattr(place, napping(getattr(sys.modules[module], name)))
        assert_moved(workers(measured(loader)), stage, times * SLEEP)


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("backend", ["cpu", "torchvision"])
def test_stages_add_up(backend: str, count: int, folder: Path, monkeypatch: pytest.MonkeyPatch, slept: None) -> None:
    """To the time of their process, whatever else the machine does meanwhile."""
    monkeypatch.setattr(T.Normalize, "forward", napping(T.Normalize.forward, 0.03))
    monkeypatch.setattr(read, "only_decodes", lambda source: False)  # compiled code has a clock of its own
    with accel.image_backend(backend):
        loader = DataLoader(Sleeping(folder, user=0.05), 1, num_workers=count, collate_fn=slow_collate)
        result = measured(loader, epochs=4, step=lambda batch: (batch[0].sum(), time.sleep(0.2)))
    for each in result.processes:
        told = sum(spent.ns for name, spent in each.stages.items() if name != "send") / 1e9
        assert each.seconds > 0.1 * EACH
        assert told == pytest.approx(each.seconds, rel=0.01), each  # sending is a thread of its own, beside the others
        for spent in each.stages.values():
            assert sum(spent.histogram) == spent.count
    making = workers(result) or [main(result)]
    assert seconds(making, "user") == pytest.approx(0.05 * 4 * EACH, rel=0.02)
    assert seconds(making, "collate") == pytest.approx(SLEEP * 4 * 4 * EACH, rel=0.02)
    assert seconds([main(result)], "step") == pytest.approx(0.2 * 4 * EACH, rel=0.02)


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
    """A look at a word of memory for each compiled call, here one a batch, and for an image nothing."""
    calls: Counter[str] = Counter()

    def count(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename in (clocks.__file__, measuring.__file__):
            calls[frame.f_code.co_name] += 1

    with accel.image_backend("cpu", threads=1):
        loader = DataLoader(ImageFolder(str(folder), TRAIN), 2)
        for _ in range(3):  # the first two load and compile
            calls.clear()
            torch.manual_seed(1)  # no crop of another structure than its neighbour's, which would be a second call
            iterator = iter(loader)
            sys.setprofile(count)
            try:
                for images, _ in iterator:
                    images.sum()
            finally:
                sys.setprofile(None)
    assert calls == {"measuring": EACH / 2}


def test_a_fork_in_the_middle_of_a_stage() -> None:
    """The child counts for itself: nothing of what its parent was at."""

    def inside() -> int:
        child = os.fork()
        if child == 0:
            clean = clocks.total().sum() == 0
            os._exit(0 if clean and measuring.measuring() else 1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    collect.start()
    try:
        assert clocks.timed(clocks.USER, inside)() == 0
        assert clocks.total()[clocks.USER, clocks.NS] > 0
    finally:
        collect.stop()


def test_times_are_own_times(slept: None) -> None:
    collect.start()
    try:
        inner = clocks.timed(clocks.DECODE, lambda: time.sleep(0.03))
        clocks.timed(clocks.TRANSFORM, lambda: (inner(), inner(), time.sleep(0.01)))()
        with pytest.raises(KeyError):
            clocks.timed(clocks.READ, {}.__getitem__)(1)
        found = clocks.total()
        assert found[clocks.DECODE, clocks.NS] == pytest.approx(60e6, rel=0.01)
        assert found[clocks.TRANSFORM, clocks.NS] == pytest.approx(10e6, rel=0.01)
        assert found[clocks.READ, clocks.COUNT] == 1
        assert clocks.clock().inside > 0
    finally:
        collect.stop()


def test_a_worker_that_sends_does_not_wait(folder: Path, slept: None) -> None:
    loader = DataLoader(Sleeping(folder), 1, num_workers=1, prefetch_factor=1, collate_fn=with_slow_message)
    (worker,) = workers(measured(loader))
    assert seconds([worker], "send") == pytest.approx(EACH * SLEEP * 6, rel=0.02)
    told = sum(spent.ns for spent in worker.stages.values()) / 1e9
    assert worker.seconds <= told < worker.seconds + SLEEP * 9  # the last is sent after that


def test_what_is_read_of_a_message_is_told_from_waiting_for_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = type(get_context().Pipe(duplex=False)[0])
    monkeypatch.setattr(connection, "_recv_bytes", napping(connection._recv_bytes))
    loader = DataLoader(Sleeping(folder), 1, num_workers=1, persistent_workers=True)
    result = measured(loader, epochs=2)
    assert main(result).stages["receive"].count == len(result.batches) + 1  # and that the worker goes on
    assert seconds([main(result)], "receive") >= SLEEP * len(result.batches)
    assert seconds([main(result)], "wait") <= sum(batch.wait_ns for batch in result.batches) / 1e9 - SLEEP
    for _ in loader:  # it is measured no more
        pass
    assert not any(clock.done for clock in clocks.threads)


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("backend", ["cpu", "torchvision"])
def test_the_stages_of_every_fetch_are_timed(
    backend: str, count: int, folder: Path, monkeypatch: pytest.MonkeyPatch, slept: None
) -> None:
    late = T.Compose([TRAIN, T.Lambda(napping(lambda values: values, 0.004))])
    monkeypatch.setattr(T.Normalize, "forward", napping(T.Normalize.forward, 0.002))
    with accel.image_backend(backend):
        loader = DataLoader(Sleeping(folder, transform=late), 1, num_workers=count, persistent_workers=count > 0)
        measured(loader)
        result = measured(loader, epochs=5)
    (process,) = workers(result) or [main(result)]
    naps = process.stages["user"], process.stages["record" if backend == "cpu" else "transform"]
    assert naps[0].ns / 1e9 == pytest.approx(5 * EACH * 0.004, rel=0.05)
    assert naps[1].ns / 1e9 == pytest.approx(5 * EACH * 0.002, rel=0.05)
    assert process.images == 5 * EACH
    assert process.stages["user"].count == 5 * EACH
    for spent in process.stages.values():
        assert sum(spent.histogram) == spent.count


def test_what_a_worker_has_not_added_up_is_read() -> None:
    collect.start()
    try:
        measuring.flush()
        for number in range(1, 4):
            clocks.clock().add(clocks.READ, 1000 * number)
            measuring.flush(clocks.now())
            (row,) = measuring.rows_of()
            assert row.stages[clocks.READ, clocks.COUNT] == number
            assert row.stages[clocks.READ, clocks.NS] == 500 * number * (number + 1)
        for _ in range(5000):
            clocks.clock().add(clocks.READ, 1)
        measuring.flush()
        (row,) = measuring.rows_of()
        assert row.stages[clocks.READ, clocks.COUNT] == 3 + 5000
    finally:
        collect.stop()


def test_threads_that_end_are_not_forgotten() -> None:
    collect.start()
    try:
        most = clocks._MOST_THREADS
        for _ in range(3 * most):
            thread = threading.Thread(target=clocks.timed(clocks.DECODE, int))
            thread.start()
            thread.join()
        clocks.total()
        assert len(clocks.threads) < most
        assert clocks.total()[clocks.DECODE, clocks.COUNT] == 3 * most
    finally:
        collect.stop()


def test_the_hottest_statement(folder: Path) -> None:
    result = measured(DataLoader(Sleeping(folder, user=0.1), 4, num_workers=1))
    found = max((each for each in result.samples if each.process != os.getpid()), key=lambda each: each.count)
    assert (Path(found.file).name, found.function) == ("measure.py", "__getitem__")
    assert found.text == "time.sleep(self.user)  # the statement"
    assert found.loading
    hot = measured(DataLoader(Sleeping(folder), 4), step=lambda batch: time.sleep(0.2))
    assert {(each.text, each.loading) for each in hot.samples if each.count > 5} <= {
        ("hot = measured(DataLoader(Sleeping(folder), 4), step=lambda batch: time.sleep(0.2))", False)
    }


def test_a_statement_of_code_that_is_made_anew() -> None:
    """It is one statement however often it is made."""
    looks = 3 * measuring.TEXTS

    def run() -> None:
        for _ in range(looks):
            exec(compile("look(sys._getframe())", "/made.py", "exec"), {"sys": sys, "look": LOOK})

    collect.start()
    try:
        with sampler.sampler.paused(True):
            run()
    finally:
        found = collect.stop().samples
    assert [each.count for each in found if each.file == "/made.py"] == [looks]


def test_code_that_a_library_makes_is_none_of_the_users() -> None:
    """As a dataclass makes some; what ``python -c`` runs is."""
    text = "look(sys._getframe())"

    def run(name: str) -> None:
        exec(text, {"__name__": name, "sys": sys, "look": LOOK})  # what called it

    collect.start()
    try:
        with sampler.sampler.paused(True):
            for name in ("dataclasses", "__main__"):
                run(name)
    finally:
        found = collect.stop().samples
    assert sorted((Path(each.file).name, each.function) for each in found) == [
        ("<string>", "<module>"),
        ("test_clocks.py", "run"),
    ]


def test_cpu_times_are_written_before_anything_is_added_up(folder: Path) -> None:
    result = measured(DataLoader(Sleeping(folder), 4, num_workers=1))
    for each in workers(result):
        assert each.stages["decode"].cpu_ns
        assert each.stages["transform"].cpu_ns
    assert main(result).stages["wait"].cpu_ns is not None


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
        assert names(loader) >= {"accel::read", "accel::plan", "accel::transform", "accel::decode+transform"}
        with accel.profile(show=False) as report:
            assert names(loader) >= {"accel::record", "accel::wait", "accel::decode+transform"}
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
    its, reading = (worker.stages[each].ns for each in ("decode", "read"))
    assert its <= sum(ns for *_, ns in decoded) <= its + reading  # Pillow reads while it decodes
    assert pickle.loads(pickle.dumps(result)) == result


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


def test_the_sampler_does_not_sleep_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a pause nor the end waits for its next look, which is a quarter of an hour away."""
    monkeypatch.setattr(sampler, "_HERTZ", 0.001)
    seen: list[int] = []

    def look() -> None:
        seen.append(sum(thread.name == "accel-sampler" for thread in threading.enumerate()))

    def measure() -> None:
        collect.start()
        look()
        with sampler.sampler.paused(True):
            look()
        look()
        collect.stop()
        look()

    thread = threading.Thread(target=measure, daemon=True)
    thread.start()
    thread.join(60)
    assert seen == [1, 0, 1, 0]


class Nested(IterableDataset[Any]):
    """Asks a loader of its own."""

    def __iter__(self) -> Any:
        yield from DataLoader(range(40), 4)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, 1])
def test_a_loader_within_a_dataset_is_the_datasets_work(count: int) -> None:
    result = measured(DataLoader(Nested(), 2, num_workers=count))
    assert [batch.images for batch in result.batches] == [2] * 5
    assert len(result.loaders) == 1
    assert [worker.images for worker in workers(result)] == [10 + 2 * bool(count)] * count  # it asks for one more
