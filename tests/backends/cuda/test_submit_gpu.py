"""Submission on a real device: that nothing waits which should not, and that memory lives as long as it is used."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms as T

import accel
from accel.runtime import streams
from tests.support.helpers import Files, assert_same, undecodable
from tests.support.loaders import batch
from tests.support.processes import eventually, plain

pytestmark = pytest.mark.gpu

BUSY = 1_000_000_000  # cycles: about half a second
SMALL = T.Compose([T.Resize((40, 48)), T.ToTensor()])


@contextmanager
def no_synchronisation() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def on_gpu(images: torch.Tensor) -> torch.Tensor:
    assert images.device == torch.device("cuda", torch.cuda.current_device())
    return images.cpu()


def test_a_submitted_batch_overlaps_with_the_current_stream(paths: list[str]) -> None:
    """The consumer's stream is busy: the batch is computed meanwhile, and the host does not wait for either."""
    accel.set_image_backend("cuda", device="cuda")
    expected = plain(lambda: batch(paths))
    accel.submit(batch(paths)).result()  # kernels are compiled
    torch.cuda.synchronize()
    for use in (lambda images: accel.submit(images).result(), lambda images: images.pin_memory().to("cuda")):
        torch.cuda._sleep(BUSY)
        busy = torch.cuda.Event()
        busy.record()
        with no_synchronisation():
            images = use(batch(paths))
        assert not busy.query(), "the host waited for the current stream"
        assert torch.equal(on_gpu(images), expected)


def test_the_consumer_waits_for_a_busy_side_stream(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A result taken before the device has computed it is right all the same."""
    from accel.backends.cuda.backend import CudaBackend

    run_on = CudaBackend.run_on

    def late(*arguments: Any) -> torch.Tensor:
        computed = run_on(*arguments)  # which waits for the decoder
        result = torch.full_like(computed, 7)
        torch.cuda._sleep(BUSY)
        return result.copy_(computed)

    accel.set_image_backend("cuda", device="cuda")
    monkeypatch.setattr(CudaBackend, "run_on", late)
    for _ in range(2):  # the first time, torch waits for the device when it loads its kernels
        images = accel.submit(batch(paths)).result()
        copy, done = images * 1, torch.cuda.Event()
        done.record()
        late_at_all = not done.query()
        torch.cuda.synchronize()
    assert late_at_all, "this shows nothing"
    assert torch.equal(on_gpu(copy), plain(lambda: batch(paths)))


def test_a_batch_does_not_wait_for_the_one_before(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files go over, and are decoded, on another stream."""
    from accel.backends.cuda.backend import CudaBackend

    run_on, busy = CudaBackend.run_on, []

    def late(*arguments: Any) -> torch.Tensor:
        if not busy:
            torch.cuda._sleep(2 * BUSY)
            busy.append(torch.cuda.current_stream().record_event())
        return run_on(*arguments)

    accel.set_image_backend("cuda", device="cuda")
    for future in [accel.submit(batch(paths)) for _ in range(6)]:  # all threads have their memory
        future.result()
    torch.cuda.synchronize()
    monkeypatch.setattr(CudaBackend, "run_on", late)
    first = accel.submit(batch(paths))
    eventually(lambda: busy)
    images = on_gpu(accel.submit(batch(paths)).result())
    assert not busy[0].query(), "it waited for the first"
    expected = plain(lambda: batch(paths))
    assert torch.equal(images, expected)
    assert torch.equal(on_gpu(first.result()), expected)


def test_memory_lives_as_long_as_it_is_used(paths: list[str]) -> None:
    """Batches that are dropped while the consumer's stream still has to read them are not written over."""
    accel.set_image_backend("cuda", device="cuda")
    expected = plain(lambda: batch(paths, 200)).double().sum(dim=(1, 2, 3))
    sums = []
    torch.cuda._sleep(BUSY)
    for _ in range(30):
        images = batch(paths, 200).pin_memory().to("cuda")
        sums.append(images.double().sum(dim=(1, 2, 3)))
        del images
    for found in sums:
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("options", [{}, {"device": "cuda"}, {"prefetch": 1}], ids=str)
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_an_unchanged_loop(paths: list[str], options: dict[str, Any], method: str) -> None:
    accel.set_image_backend("cuda", **options)
    torch.zeros(1, device="cuda")  # fork after use
    wanted = plain(lambda: [images for images, _ in DataLoader(Files(paths, SMALL), batch_size=2)])
    for _ in range(3):
        loader: DataLoader[Any] = DataLoader(
            Files(paths, SMALL), 2, pin_memory=True, num_workers=2, multiprocessing_context=method, timeout=100
        )
        found = [on_gpu(images.to("cuda", non_blocking=True)) for images, _ in loader]
        assert_same(found, wanted)
    eventually(lambda: accel.stats()["in flight"] == 0)


def test_each_result_or_its_error_on_a_stream_of_the_users(paths: list[str]) -> None:
    """Not the current stream, which is busy, waits for the results."""
    accel.set_image_backend("cuda", device="cuda")
    images = [batch(paths[:2]), batch(paths[2:4])]
    images.insert(1, torch.stack([SMALL(Image.open(BytesIO(undecodable())))] * 2))
    accel.submit(batch(paths[:2])).result()  # kernels are compiled
    stream = torch.cuda.Stream()
    torch.cuda._sleep(BUSY)
    busy = torch.cuda.current_stream().record_event()
    first, error, last = accel.submit(images, errors="return", stream=stream).result()
    with torch.cuda.stream(stream):
        first, last = first * 1, last * 1
    stream.synchronize()
    assert not busy.query(), "the current stream was waited for"
    assert isinstance(error, accel.DecodeError)
    assert torch.equal(on_gpu(first), plain(lambda: batch(paths[:2])))
    assert torch.equal(on_gpu(last), plain(lambda: batch(paths[2:4])))


def test_small_requests_have_the_same_bits(paths: list[str]) -> None:
    accel.set_image_backend("cuda", device="cuda")
    wanted = plain(lambda: batch(paths[:1]))
    before = on_gpu(accel.submit(batch(paths[:1])).result())
    most = accel.warm("cuda", [(16, 375, 500)])
    assert 0 <= most <= 16
    assert torch.equal(on_gpu(accel.submit(batch(paths[:1])).result()), wanted)
    assert torch.equal(before, wanted)


def test_many_threads_take_the_memory_of_few(paths: list[str]) -> None:
    """More threads than streams, each of which computes in place."""
    accel.set_image_backend("cuda", device="cuda")
    wanted = plain(lambda: batch(paths, 100))

    def reserved(threads: int) -> int:
        with ThreadPoolExecutor(threads) as pool:
            found = list(pool.map(lambda _: torch.equal(on_gpu(batch(paths, 100).to("cuda")), wanted), range(64)))
        assert all(found)
        return torch.cuda.memory_reserved()

    few = reserved(streams.MOST)
    assert reserved(32) <= 2 * few


def test_several_devices(paths: list[str]) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    accel.set_image_backend("cuda")
    for name in ("cuda:1", "cuda:0", "cuda:1"):
        images = batch(paths).pin_memory().to(name)
        assert images.device == torch.device(name)
        assert torch.equal(images.cpu(), plain(lambda: batch(paths)))


def test_memory_does_not_grow(paths: list[str]) -> None:
    accel.set_image_backend("cuda", device="cuda")

    def once() -> None:
        for _ in range(20):
            batch(paths, 100).pin_memory().to("cuda")
            batch(paths, 100).pin_memory()  # which nobody uses
        torch.cuda.synchronize()

    once()
    once()
    before = torch.cuda.memory_reserved()
    for _ in range(10):
        once()
    assert torch.cuda.memory_reserved() <= 2 * before
