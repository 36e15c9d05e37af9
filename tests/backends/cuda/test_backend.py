"""The cuda backend around its kernels: options, errors, chunks, memory, threads, the device's decoder."""

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torchvision.transforms import functional as F

import accel
from accel import testing
from accel.backend import backend_of
from accel.backends.cpu import stages
from accel.backends.cuda import CudaOptions, budget, host
from accel.backends.cuda.decoder import Decoder
from accel.backends.cuda.lowering import device_bytes
from accel.backends.cuda.pinned_pool import PinnedPool
from accel.planning.plan import Plan, plan
from accel.processes.switch import current
from accel.runtime import picture_memory
from rig.batches import noise
from tests.support import inside
from tests.support.cuda import (
    DEVICE,
    assert_equals_torchvision,
    host_only,
    needs_compiler,
    on_device,
    pipeline,
    stacked,
)
from tests.support.helpers import assert_same, pictures
from tests.support.processes import in_child, in_threads, plain

pytestmark = [needs_compiler, pytest.mark.usefixtures("poisoned")]

ON = torch.empty(0, device=DEVICE).device


# -- options, and whether it can run ------------------------------------------------------------------------


WRONG_VALUES: list[dict[str, Any]] = [{"decode": "cpu"}, {"decode": "nvimgcodec"}, {"threads": 0}, {"threads": 1.5}]
WRONG_VALUES += [{"memory": -1}, {"memory": True}, {"prefetch": 0}, {"device": "mps"}, {"device": "no such"}]
WRONG_TYPES: list[dict[str, Any]] = [{"device": 0}, {"colour": 1}]


@pytest.mark.parametrize(
    ("options", "error"), [*((o, ValueError) for o in WRONG_VALUES), *((o, TypeError) for o in WRONG_TYPES)], ids=str
)
def test_wrong_options(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        accel.set_image_backend("cuda", **{"device": "cpu", **options})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_without_a_device_it_says_how_to_try_it() -> None:
    assert str(accel.image_backends()["cuda"]).startswith("no CUDA device; set_image_backend('cuda', device='cpu')")
    with pytest.raises(accel.BackendUnavailable, match=r"no CUDA device; .*device='cpu'"):
        accel.set_image_backend("cuda")
    with accel.image_backend("auto"):
        assert accel.get_image_backend() == "cpu"


def test_without_a_compiler_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.shutil, "which", lambda name: None)
    with pytest.raises(accel.BackendUnavailable, match=r"needs g\+\+"):
        accel.set_image_backend("cuda", device="cpu")


def test_explain_names_the_decoder() -> None:
    with accel.image_backend("cuda", device=DEVICE):
        assert "decoder: accel's own on the device" in accel.explain(pipeline())
    with accel.image_backend("cuda", device=DEVICE, decode="host"):
        assert "decoder: accel's decoders on the host" in accel.explain(pipeline())


# -- chunks and memory --------------------------------------------------------------------------------------


def planned(lazy: Any) -> Plan:
    return plan(lazy.lazy.recipes)


def test_chunks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = inside.runs_of_cuda(monkeypatch)
    expected = assert_equals_torchvision(pipeline)
    count = len(pictures())
    assert runs == [count]
    for memory, chunks in ((1, [1] * count), (100_000, None), (1 << 30, [count])):
        runs.clear()
        assert_same(on_device(pipeline, memory=memory), expected)
        assert sum(runs) == count
        assert runs == chunks or chunks is None
    sizes = [device_bytes(each) for each in planned_files().decodes]
    assert 1 < len(list(budget.chunks(sizes, 100_000))) < count


def planned_files() -> Plan:
    with accel.image_backend("cuda", device=DEVICE):
        return planned(pipeline())


class Asked(host.HostDevice):
    """Counts how often it is asked for its memory."""

    def __init__(self) -> None:
        super().__init__()
        self.uses = 0

    def free_memory(self) -> int:
        self.uses += 1
        return 141 << 30


def test_memory_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And again for a larger batch than before, where memory ran out, and each second; 1,024 images are not split."""
    monkeypatch.setattr(picture_memory, "memory", lambda: 128 << 30)
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    planned, device = planned_files(), Asked()
    asked, runs = budget.Budget(device), list[int]()

    def run(size: int) -> int:
        runs.clear()
        asked.in_chunks(
            planned, lambda part: runs.append(len(part.decodes)), lambda part: [size] * len(part.decodes), None
        )
        return device.uses

    count = len(planned.decodes)
    assert [run(4 << 30 >> n) for n in (12, 12, 13)] == [1, 1, 1]
    assert (run((8 << 30) // count), runs) == (2, [count])
    assert run((8 << 30) // count + 1) == 3
    assert len(runs) == 2

    def fails(part: Plan) -> None:
        if len(part.decodes) > 1:
            raise MemoryError

    asked.in_chunks(planned, fails, lambda part: [1 << 20] * len(part.decodes), None)
    assert run(1 << 20) == 4
    now[0] += 0.9
    assert run(1 << 20) == 4
    now[0] += 0.2
    assert (run(1 << 20), run(1 << 20)) == (5, 5)


@pytest.mark.parametrize(("left", "expected"), [(0, 0), (7 << 30, 7 << 30), (None, 4 << 30)])
def test_the_hosts_memory_that_is_left(monkeypatch: pytest.MonkeyPatch, left: int | None, expected: int) -> None:
    monkeypatch.setattr(host.store, "left", lambda: left)
    assert host.HostDevice().free_memory() == expected


def test_sizes_settle() -> None:
    """Batches of about the same size take the same memory, at most an eighth more than they need; and once."""
    sizes = range(1_000_000, 1_125_000, 9_999)
    device = host.HostDevice()
    taken = {len(device.scratch(size)) for size in sizes}
    assert len(taken) <= 3
    assert all(size <= len(device.scratch(size)) <= size * 9 / 8 for size in (1, 7, 100, 12_345, 1_000_001))
    pool = PinnedPool(lambda size: torch.empty(size, dtype=torch.uint8))
    for size in (40 << 20, 60 << 20, 33 << 20, 64 << 20):
        buffer = pool.take(size)
        assert len(buffer) == 64 << 20, "torch would round it to that"
        pool.give_back(buffer, None)
    assert pool.kept == 64 << 20


def limited(most: int, error: Callable[[], Exception]) -> Callable[..., torch.Tensor]:
    def pinned(self: Any, size: int) -> torch.Tensor:
        if size > most:
            raise error()
        return torch.full((size,), 171, dtype=torch.uint8)

    return pinned


ERRORS = (
    lambda: MemoryError(),
    lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"),
    lambda: RuntimeError("CUDA error: out of memory"),
    lambda: RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate"),
)


@host_only
@pytest.mark.parametrize("error", ERRORS)
def test_out_of_memory_is_tried_again_in_smaller_chunks(
    error: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    big = [noise(900, 700 + n, seed=n) for n in range(4)]

    def batch() -> torch.Tensor:
        return stacked(big, lambda image: F.to_tensor(F.resize(image, [20, 30])))

    expected = plain(batch)
    monkeypatch.setattr(host.HostDevice, "pinned", limited(3 << 20, error))
    assert_same(on_device(batch, threads=1), expected)
    monkeypatch.setattr(host.HostDevice, "pinned", limited(1 << 20, error))
    with pytest.raises(torch.OutOfMemoryError, match=r"a batch of 4 images, twice"):
        on_device(batch, threads=2)


@host_only
@pytest.mark.parametrize("failures", [1, 2])
def test_the_decoders_first_trial_may_run_out_of_memory(failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []  # by a backend of its own, which has not tried it yet

    def failing(trial: Any, *arguments: Any) -> Any:
        tried.append(arguments)
        if len(tried) <= failures:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
        return trial(*arguments)

    inside.wrap(monkeypatch, Decoder, "_pixels", failing)
    expected = plain(pipeline)
    if failures == 1:
        assert_same(on_device(pipeline, threads=10 + failures), expected)
    else:
        with pytest.raises(torch.OutOfMemoryError, match="twice"):
            on_device(pipeline, threads=10 + failures)
    assert len(tried) >= failures


@host_only
def test_another_error_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.HostDevice, "pinned", limited(0, lambda: RuntimeError("something else")))
    with pytest.raises(RuntimeError, match="something else"):
        on_device(pipeline, threads=3)


class Event:
    def __init__(self) -> None:
        self.reached = self.waited = False

    def query(self) -> bool:
        return self.reached

    def synchronize(self) -> None:
        self.waited = True


def test_a_buffer_that_the_device_reads_is_not_handed_out() -> None:
    pool = PinnedPool(lambda size: torch.empty(size, dtype=torch.uint8))
    first, event = pool.take(5 << 20), Event()
    address = first.data_ptr()
    pool.give_back(first, event)
    second = pool.take(5 << 20)
    assert second.data_ptr() != address
    event.reached = True
    assert pool.take(5 << 20).data_ptr() == address


def test_too_many_buffers_on_their_way_wait_for_the_oldest() -> None:
    pool = PinnedPool(lambda size: torch.empty(size, dtype=torch.uint8))
    events = []
    for _ in range(6):
        buffer = pool.take(2 << 20)
        events.append(Event())
        pool.give_back(buffer, events[-1])
    assert [event.waited for event in events] == [True, True, False, False, False, False]


def test_memory_shrinks_after_a_giant_batch() -> None:
    pool = PinnedPool(lambda size: torch.empty(size, dtype=torch.uint8))
    pool.give_back(pool.take(64 << 20), None)
    assert pool.kept >= 64 << 20
    for _ in range(20):
        pool.give_back(pool.take(1 << 20), None)
    assert 0 < pool.kept < 4 << 20


@pytest.mark.parametrize("at_once", [1, 5])
def test_a_giant_buffer_goes_back_to_the_system(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch keeps pinned memory for ever unless it is told not to: once, when there are no giant buffers any more."""
    monkeypatch.setattr(PinnedPool, "_GIANT", 64 << 20)
    kept: list[int] = []
    pool = PinnedPool(lambda size: torch.empty(size, dtype=torch.uint8), lambda: kept.append(pool.kept))
    for _ in range(2):
        pool.give_back(pool.take(64 << 20), None)
    assert not kept, "it was used again"
    for _ in range(40):
        for buffer in [pool.take(1 << 20) for _ in range(at_once)]:
            pool.give_back(buffer, None)
    assert len(kept) == 1
    assert kept[0] < 16 << 20


def test_buffers_are_used_again() -> None:
    with accel.image_backend("cuda", device=DEVICE, prefetch=3):  # a backend of its own
        running: Any = backend_of(current())
        for _ in range(5):
            testing.computed(pipeline())
        assert running._engine(ON).jpeg.programs.kept <= 2 << 20


def test_should_pillow_resize_otherwise_the_host_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "resizes_as_pillow", lambda: False)
    runs = inside.runs_of_cuda(monkeypatch)
    assert_equals_torchvision(pipeline)
    assert not runs


# -- threads and processes ----------------------------------------------------------------------------------


def test_many_threads_at_once() -> None:
    expected = plain(pipeline)
    with accel.image_backend("cuda", device=DEVICE):
        running: Any = backend_of(current())
        program = planned(pipeline())
    results: list[Any] = [None] * 8

    def work(number: int) -> None:
        for _ in range(3):
            results[number] = running.run_on(program, ON).cpu()

    in_threads([partial(work, number) for number in range(8)])
    for result in results:
        assert_same(result, expected)


@host_only
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_after_a_fork() -> None:
    expected = assert_equals_torchvision(pipeline)
    assert in_child(lambda: torch.equal(on_device(pipeline), expected))()


def test_under_inference_mode_the_values_are_ordinary() -> None:
    with accel.image_backend("cuda", device=DEVICE):
        running: Any = backend_of(current())
        program = planned(pipeline())
    with torch.inference_mode():
        assert not running.run_on(program, ON).is_inference()


# -- decoding on the device ---------------------------------------------------------------------------------


def test_options_say_who_decodes() -> None:
    assert CudaOptions().decoder == "accel"
    assert CudaOptions(exact=False).decoder == "accel"
    assert CudaOptions(exact=False, decode="accel").decoder == "accel"
    assert CudaOptions(decode="host").decoder == "host"
