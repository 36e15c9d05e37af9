"""Several devices in a process, several threads and several ranks on one: which computes, and how much at a time."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import accel
from accel.backends.cuda import budget, host
from accel.runtime import picture_memory, streams
from tests.support import inside
from tests.support.cuda import host_only, needs_compiler
from tests.support.fake_accelerator import CPU, Fake, Recorder, installed
from tests.support.helpers import assert_same
from tests.support.loaders import batch
from tests.support.processes import in_child, linux, plain

Choose = Callable[..., None]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Choose]:
    with installed(monkeypatch) as choose:
        yield choose


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    made = Recorder()
    inside.streams_of(monkeypatch, made)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda *_: None)
    return made


def in_a_thread(function: Callable[[], Any]) -> Any:
    """What a function returns, or raises, in a thread of its own."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(function())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    return found[0]


# -- which device -------------------------------------------------------------------------------------------


def test_a_device_is_learned_by_threads_with_the_same_current_one(
    paths: list[str], fake: Choose, recorder: Recorder
) -> None:
    """What a thread with another current device has used is not taken for this one's."""
    fake()

    def used(current: int, device: str | None = None) -> Any:
        def use() -> Any:
            recorder.set_device(current)
            accel.submit(batch(paths), device).result()
            return str(Fake.runs[-1][1])

        return in_a_thread(use)

    assert used(0, "cpu:0") == "cpu:0"
    assert isinstance(used(1), ValueError)
    assert used(1, "cpu:1") == "cpu:1"
    assert [used(current) for current in (0, 1, 0)] == ["cpu:0", "cpu:1", "cpu:0"]


def test_a_device_without_an_index_is_the_threads_current_one(
    paths: list[str], fake: Choose, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fake, "devices", ("cuda",))
    monkeypatch.setattr(torch.cuda, "current_device", recorder.current_device)
    fake(device="cuda")

    def used() -> str:
        accel.submit(batch(paths)).result()
        return str(Fake.runs[-1][1])

    def both(first: int) -> tuple[str, str]:
        recorder.set_device(first)
        before = used()
        recorder.set_device(1 - first)  # as inside torch.cuda.device(...)
        return before, used()

    assert in_a_thread(lambda: both(0)) == ("cuda:0", "cuda:1")
    assert in_a_thread(lambda: both(1)) == ("cuda:1", "cuda:0")


# -- how much at a time -------------------------------------------------------------------------------------


def test_many_threads_have_few_streams(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream is one thread's at a time; a thread has the one that it had; no thread's stays behind."""
    made = inside.spy(monkeypatch, Recorder, "Stream")
    at_work, most, lock = [0], [0], threading.Lock()

    def work() -> torch.Tensor:
        with lock:
            at_work[0] += 1
            most[0] = max(most[0], at_work[0])
        time.sleep(0.01)
        with lock:
            at_work[0] -= 1
        return torch.ones(1)

    threads = [threading.Thread(target=lambda: streams.aside(CPU, work)) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(made) == most[0] == streams.MOST

    def own() -> Any:
        used: list[Any] = []
        for _ in range(3):
            streams.aside(CPU, lambda: used.append(recorder.current_stream()) or torch.ones(1))
        return len(set(map(id, used)))

    assert [in_a_thread(own) for _ in range(3)] == [1, 1, 1]

    def fails() -> torch.Tensor:
        raise MemoryError

    for _ in range(2 * streams.MOST):
        assert isinstance(in_a_thread(lambda: streams.aside(CPU, fails)), MemoryError)
    assert in_a_thread(own) == 1
    assert len(made) == streams.MOST


class Shared(host.HostDevice):
    """One rank's view of a device: what is free of it, its own scratch included, which torch's allocator can reuse."""

    total = 64 << 30

    def __init__(self, held: dict[int, int], rank: int) -> None:
        super().__init__()
        self.held, self.rank = held, rank

    def free_memory(self) -> int:
        return self.total - sum(size for rank, size in self.held.items() if rank != self.rank)


@host_only
def test_ranks_and_models_on_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each looks every second; with as many batches as there may be at a time, all of them fit."""
    monkeypatch.setattr(picture_memory, "memory", lambda: 1 << 50)
    now, held = [0.0], dict[int, int]()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    ranks = [budget.Budget(Shared(held, rank)) for rank in range(2)]

    def limit(rank: int) -> int:
        """The most that a batch of this rank may take: that of the largest chunk."""
        chunks: list[int] = []
        plan: Any = type("Plan", (), {"decodes": range(4096), "shape": (4096,)})()
        plan._replace = lambda decodes: chunks.append(len(decodes))
        ranks[rank].in_chunks(plan, lambda part: None, lambda part: [64 << 20] * 4096, None)
        return max(chunks) * (64 << 20)

    for _ in range(6):
        now[0] += 1.1
        for rank in range(2):
            held[rank] = streams.MOST * limit(rank)
            assert sum(held.values()) <= Shared.total
    assert min(held.values()) > Shared.total // 8
    before = limit(0)
    held[2] = Shared.total // 2  # a model's
    assert limit(0) == before
    now[0] += 1.1
    assert limit(0) < before
    held.pop(2)
    now[0] += 1.1
    assert limit(0) == before


@linux
@needs_compiler
@host_only
def test_two_processes_compute_on_one_device(paths: list[str]) -> None:
    accel.set_image_backend("cuda", device="cpu")
    expected = plain(lambda: batch(paths))
    assert_same(accel.submit(batch(paths)).result(), expected)  # kernels are compiled

    def rank() -> bool:
        found = [accel.submit(batch(paths)) for _ in range(8)]
        return all(torch.equal(future.result(), expected) for future in found)

    first, second = in_child(rank), in_child(rank)  # both are at work
    assert first()
    assert second()
