"""Facts that only a GPU shows: order, overlap and lifetimes on real streams.

The kernels' results are tested by the other files, which run on the GPU with ACCEL_TEST_DEVICE=cuda
(``python -m bench.gpu`` does it).
"""

import os
from functools import partial
from io import BytesIO
from typing import Any

import pytest
import torch
from PIL import Image
from torchvision.transforms import functional as F

import accel
from accel.backend import backend_of
from accel.backends.cuda.backend import CudaBackend
from accel.planning.plan import Plan, plan
from accel.processes.switch import current
from rig.batches import noise
from tests.support.cuda import stacked
from tests.support.helpers import jpeg
from tests.support.processes import in_threads

pytestmark = pytest.mark.gpu

BUSY = 2_000_000_000  # cycles: about a second


def device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())


def files(seed: int, count: int = 24) -> list[bytes]:
    return [jpeg(300 + 7 * n, 240 + 5 * n, seed=seed + n, subsampling=n % 3) for n in range(count)]


def batch(streams: list[bytes], size: int = 96, *, effects: bool = False) -> torch.Tensor:
    """Resized; with ``effects`` every other one has its colours and places changed as well."""

    def transform(image: Image.Image, number: int) -> torch.Tensor:
        image = F.resize(image, [size, size])
        if effects and number % 2:
            image = F.rotate(F.equalize(F.adjust_contrast(F.adjust_hue(image, 0.1), 1.3)), 10 + number)
        return F.to_tensor(image)

    return torch.stack([transform(Image.open(BytesIO(each)), number) for number, each in enumerate(streams)])


def expected(streams: list[bytes], size: int = 96, *, effects: bool = False) -> torch.Tensor:
    with accel.image_backend("torchvision"):
        return batch(streams, size, effects=effects)


def program(streams: list[bytes], size: int = 96, *, effects: bool = False, **options: Any) -> tuple[CudaBackend, Plan]:
    with accel.image_backend("cuda", **options):
        running: Any = backend_of(current())
        return running, plan(batch(streams, size, effects=effects).lazy.recipes)  # type: ignore[attr-defined]


def test_nothing_waits_for_the_stream() -> None:
    """Where the host decodes: accel's decoder on the device has to ask it which streams are damaged."""
    running, wanted = program(files(0), effects=True, decode="host")
    stream, done = torch.cuda.Stream(), torch.cuda.Event()
    with torch.cuda.stream(stream):
        running.run_on(wanted, device())  # kernels are compiled, memory is there
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(BUSY)
        result = running.run_on(wanted, device())
        done.record(stream)
    assert not done.query(), "run_on waited for its stream"
    torch.cuda.current_stream().wait_event(done)
    assert torch.equal(result.cpu(), expected(files(0), effects=True))


def test_batches_behind_a_busy_stream_keep_their_pixels() -> None:
    """Staging memory is not written before the device has read it."""
    results, streams = [], torch.cuda.Stream()
    with torch.cuda.stream(streams):
        torch.cuda._sleep(BUSY)
        for seed in range(0, 600, 100):
            running, wanted = program(files(seed), effects=True, decode="host")
            results.append(running.run_on(wanted, device()))
    torch.cuda.synchronize()
    for seed, result in zip(range(0, 600, 100), results, strict=True):
        assert torch.equal(result.cpu(), expected(files(seed), effects=True))


def test_threads_with_streams_of_their_own() -> None:
    found: dict[int, list[torch.Tensor]] = {}

    def work(seed: int) -> None:
        running, wanted = program(files(seed), effects=True)
        with torch.cuda.stream(torch.cuda.Stream()):
            found[seed] = [running.run_on(wanted, device()).cpu() for _ in range(5)]

    in_threads([partial(work, 100 * n) for n in range(6)])
    for seed, results in found.items():
        wanted = expected(files(seed), effects=True)
        assert all(torch.equal(result, wanted) for result in results)
    assert len(found) == 6


def test_memory_is_torchs() -> None:
    """Also in deterministic mode, in which it is not filled."""
    from accel.backends.cuda.device import CudaDevice

    before = torch.cuda.memory_allocated()
    made = CudaDevice(device()).empty((1 << 20, 5), torch.float32)
    assert torch.cuda.memory_allocated() >= before + (20 << 20)
    assert (made.device, made.shape, made.stride()) == (device(), (1 << 20, 5), (5, 1))
    del made
    assert torch.cuda.memory_allocated() == before


def test_memory_is_given_back() -> None:
    running, wanted = program(files(0))
    running.run_on(wanted, device())
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    giant = noise(6000, 6000)
    with accel.image_backend("cuda"):
        lazy: Any = stacked([giant], lambda image: F.to_tensor(F.resize(image, [64, 64])))
        backend_of(current()).run_on(plan(lazy.lazy.recipes), device())  # type: ignore[attr-defined]
    for _ in range(20):
        running.run_on(wanted, device())
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before


def test_pinned_memory_is_given_back() -> None:
    running, wanted = program(files(0), decode="host")
    running.run_on(wanted, device())
    torch.cuda.synchronize()
    before = torch.cuda.host_memory_stats()["allocated_bytes.current"]
    with accel.image_backend("cuda", decode="host"):
        lazy: Any = stacked([noise(10000, 10000)], lambda image: F.to_tensor(F.resize(image, [64, 64])))
        backend_of(current()).run_on(plan(lazy.lazy.recipes), device())  # type: ignore[attr-defined]
    torch.cuda.synchronize()
    assert torch.cuda.host_memory_stats()["allocated_bytes.current"] > before + (1 << 28), "this shows nothing"
    for _ in range(40):
        running.run_on(wanted, device())
    torch.cuda.synchronize()
    assert torch.cuda.host_memory_stats()["allocated_bytes.current"] <= before + (1 << 27)


def test_out_of_memory_runs_in_smaller_chunks() -> None:
    pictures = [noise(1500, 1500 + n, seed=n) for n in range(12)]
    with accel.image_backend("torchvision"):
        wanted = stacked(pictures, lambda image: F.to_tensor(F.resize(image, [64, 64])))
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(device()).total_memory
    with accel.image_backend("cuda", memory=1 << 40):
        lazy: Any = stacked(pictures, lambda image: F.to_tensor(F.resize(image, [64, 64])))
        running: Any = backend_of(current())
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (48 << 20)) / total)
        try:
            found = running.run_on(plan(lazy.lazy.recipes), device()).cpu()
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.equal(found, wanted)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two devices")
def test_two_devices_in_turns() -> None:
    running, wanted = program(files(0), effects=True)
    for index in (1, 0, 1):
        found = running.run_on(wanted, torch.device("cuda", index))
        assert found.device.index == index
        assert torch.equal(found.cpu(), expected(files(0), effects=True))
    assert torch.cuda.current_device() == 0


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two devices")
def test_two_devices_at_once() -> None:
    running, wanted = program(files(0), effects=True)
    found: dict[int, list[torch.Tensor]] = {}

    def work(index: int) -> None:
        where = torch.device("cuda", index)
        with torch.cuda.device(where), torch.cuda.stream(torch.cuda.Stream()):
            found[index] = [running.run_on(wanted, where).cpu() for _ in range(5)]

    in_threads([partial(work, index) for index in (0, 1)])
    assert found.keys() == {0, 1}
    assert all(
        torch.equal(result, expected(files(0), effects=True)) for results in found.values() for result in results
    )


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_computes_on_the_host() -> None:
    """CUDA does not survive a fork."""
    running, wanted = program(files(0), effects=True)
    right = running.run_on(wanted, device()).cpu()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with accel.image_backend("cuda"):
                status = int(not torch.equal(torch.clone(batch(files(0), effects=True)), right))
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
