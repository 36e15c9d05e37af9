"""accel.submit: futures of lazy images, on the host and on an accelerator."""

import asyncio
import concurrent.futures
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import pytest
import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import functional as F
from torchvision.transforms import v2

import accel
from tests.support import helpers, inside
from tests.support.fake_accelerator import CPU0, Fake, Recorder, installed
from tests.support.helpers import assert_same, is_lazy, jpeg, open_rgb, undecodable
from tests.support.loaders import batch, tensor
from tests.support.processes import eventually, in_child, plain

Choose = Callable[..., None]
WAIT = 300  # seconds, none of which is waited in vain: the first test may have kernels to compile


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Choose]:
    with installed(monkeypatch) as choose:
        yield choose


# -- on the host --------------------------------------------------------------------------------------------


def turns_while(start: Callable[[], concurrent.futures.Future[Any]]) -> int:
    """How often this thread gets its turn until a future is done, where no thread has to give up the interpreter."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        future, turns = start(), 0
        while not future.done():
            time.sleep(0)
            turns += 1
    finally:
        sys.setswitchinterval(interval)
    future.result(WAIT)
    return turns


def test_a_clone_of_what_was_submitted_has_memory_of_its_own() -> None:
    def run() -> Any:
        image = F.to_tensor(Image.open(BytesIO(jpeg(40, 30))))
        future = accel.submit(image) if accel.get_image_backend() != "torchvision" else None
        copy, again = image.clone(), image.clone().clone()
        copy.mul_(2)
        again.mul_(3)
        return image, image if future is None else future.result(WAIT), copy, again

    helpers.assert_equal_runs(run)


def test_the_interpreter_is_free_while_it_computes() -> None:
    accel.set_image_backend("cpu", threads=1)
    file = BytesIO(jpeg(2400, 1600))

    def submitted() -> concurrent.futures.Future[Any]:
        return accel.submit(F.to_tensor(F.resize(Image.open(file), [900, 1200])))

    submitted().result(WAIT)  # kernels are compiled
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        held = turns_while(lambda: pool.submit(sum, range(20_000_000)))
    assert turns_while(submitted) > 4 * max(held, 5)


def test_a_batch_on_the_host(paths: list[str]) -> None:
    accel.set_image_backend("cpu")
    images = batch(paths)
    future = accel.submit(images)
    result = future.result(WAIT)
    assert future.done()
    assert not future.running()
    assert future.exception() is None
    assert result is images
    assert type(images) is torch.Tensor
    assert future.result() is result
    assert_same(result, plain(lambda: batch(paths)))


@pytest.mark.parametrize("kind", ["list", "tuple", "single", "image", "grey", "v2"])
def test_what_can_be_submitted(paths: list[str], kind: str) -> None:
    def make() -> Any:
        if kind == "v2":
            return v2.functional.resize(v2.functional.to_image(open_rgb(paths[0])), [9, 11])
        if kind in ("image", "grey"):
            return F.hflip(Image.open(paths[0] if kind == "image" else paths[4]))
        if kind == "single":
            return tensor(paths[0])
        several = [tensor(paths[0]), tensor(paths[1]), tensor(paths[2], 40), batch(paths[3:5], 40)]
        return several if kind == "list" else tuple(several)

    accel.set_image_backend("cpu")
    lazy = make()
    result = accel.submit(lazy).result(WAIT)
    expected = plain(make)
    if isinstance(expected, tuple):
        expected = list(expected)
    if kind in ("image", "grey"):
        expected = F.pil_to_tensor(expected)
    assert_same(result, expected)
    assert type(result) is (list if kind in ("list", "tuple") else tv_tensors.Image if kind == "v2" else torch.Tensor)
    if kind == "list":
        assert all(one is other for one, other in zip(result, lazy, strict=True))


def test_eager_things_pass(paths: list[str]) -> None:
    accel.set_image_backend("cpu")
    eager, picture = torch.ones(3), Image.new("RGB", (4, 4))
    assert accel.submit(eager).result() is eager
    assert accel.submit([]).result() == []
    lazy = tensor(paths[0])
    result = accel.submit([eager, lazy, picture, None]).result(WAIT)
    assert result[0] is eager
    assert result[1] is lazy
    assert result[2] is picture
    assert result[3] is None
    used = tensor(paths[1])
    used.sum()
    assert accel.submit(used).result() is used


def test_results_are_separate(paths: list[str]) -> None:
    """Images of one program share memory, and nothing that anybody could notice."""
    accel.set_image_backend("cpu")
    first, second = accel.submit([tensor(paths[0]), tensor(paths[1])]).result(WAIT)
    expected = plain(lambda: tensor(paths[1]))
    weight = torch.ones_like(second, requires_grad=True)
    loss = (second * weight).sum()
    first.zero_()
    loss.backward()  # which raises if a tensor that it needs was changed
    assert_same(second, expected)


def test_alike_images_are_one_program(paths: list[str], fake: Choose) -> None:
    fake(device="cpu")
    several = [tensor(paths[0]), tensor(paths[1], 40), tensor(paths[2]), tensor(paths[3], 40)]
    accel.submit(several).result(WAIT)
    assert [names for names, _, _ in Fake.runs] == [[paths[0], paths[2]], [paths[1], paths[3]]]


def test_it_returns_at_once_and_does_not_compute_twice(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from accel.runtime import compute

    started, go, real = threading.Event(), threading.Event(), compute.tensors

    def slowly(*arguments: Any, **options: Any) -> Any:
        started.set()
        assert go.wait(60)
        return real(*arguments, **options)

    accel.set_image_backend("cpu")
    images, before = batch(paths), accel.stats()["images"]
    monkeypatch.setattr(compute, "tensors", slowly)
    future = accel.submit(images)
    assert started.wait(60)
    assert future.running()
    assert not future.done()
    assert not future.cancel()
    assert accel.stats()["in flight"] == 1
    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(0.01)
    with pytest.raises(concurrent.futures.TimeoutError):
        future.exception(0.01)
    totals: list[float] = []
    users = [threading.Thread(target=lambda: totals.append(images.double().sum().item())) for _ in range(3)]
    for user in users:
        user.start()
    go.set()
    for user in users:
        user.join(60)
    assert future.result(WAIT) is images
    assert totals == [images.double().sum().item()] * 3
    assert accel.stats()["images"] - before == len(paths)
    eventually(lambda: accel.stats()["in flight"] == 0)


def test_waiting_for_several(paths: list[str]) -> None:
    accel.set_image_backend("cpu")
    futures = [accel.submit(batch([path], 24)) for path in paths]
    called: list[Any] = []
    for future in futures:
        future.add_done_callback(lambda done: called.append(done.result().shape))
    done, waiting = concurrent.futures.wait(futures, WAIT)
    assert (len(done), len(waiting)) == (len(paths), 0)
    eventually(lambda: len(called) == len(paths))

    async def awaited() -> Any:
        return await asyncio.wrap_future(accel.submit(tensor(paths[0])))

    assert_same(asyncio.run(awaited()), plain(lambda: tensor(paths[0])))


def test_cancelling(paths: list[str], fake: Choose) -> None:
    fake(device="cpu")
    Fake.gated = True
    busy = [accel.submit(batch(paths[:1])) for _ in range(2)]
    images = batch(paths[1:3])
    future = accel.submit(images)
    assert future.cancel()
    assert future.cancelled()
    assert future.done()
    assert concurrent.futures.wait([future], 1).done == {future}
    with pytest.raises(concurrent.futures.CancelledError):
        future.result()
    Fake.gate.release(100)
    assert_same(images.numpy(), plain(lambda: batch(paths[1:3])).numpy())  # it stays what it was
    for other in busy:
        other.result(WAIT)
    assert accel.submit(tensor(paths[0])).cancelled() is False


def choose(backend: str, fake: Choose) -> None:
    fake(device="cpu") if backend == "fake" else accel.set_image_backend(backend)


def broken(seed: int = 0) -> Image.Image:
    return Image.open(BytesIO(undecodable(seed=seed)))


@pytest.mark.parametrize("backend", ["cpu", "fake"])
def test_errors(paths: list[str], fake: Choose, backend: str) -> None:
    choose(backend, fake)
    good, bad = tensor(paths[0]), F.to_tensor(F.resize(broken(), [24, 32]))
    future = accel.submit([good, bad, tensor(paths[2], 30)])
    with pytest.raises(accel.DecodeError, match=r"<bytes>: .*number 1 of a list of 3"):
        future.result(WAIT)
    assert isinstance(future.exception(), accel.DecodeError)
    assert_same(good, plain(lambda: tensor(paths[0])))  # a bad neighbour costs it nothing
    with pytest.raises(accel.DecodeError, match="<bytes>"):
        bad.sum()
    stacked = torch.stack([tensor(paths[0]), tensor(paths[1]), F.to_tensor(F.resize(broken(), [24, 32]))])
    future = accel.submit(stacked)
    for _ in range(2):
        with pytest.raises(accel.DecodeError, match="image 2 of a batch of 3") as raised:
            future.result(WAIT)
        assert str(raised.value).count("image 2") == 1
    with pytest.raises(accel.DecodeError, match="image 2 of a batch of 3"):
        stacked.sum()


def test_broken_images_are_replaced(paths: list[str]) -> None:
    with accel.image_backend("cpu", on_error="replace"):
        images = [tensor(paths[0]), F.to_tensor(F.resize(broken(), [24, 32]))]
    first, second = accel.submit(images).result(WAIT)
    assert second.eq(0).all()
    assert_same(first, plain(lambda: tensor(paths[0])))


def test_inference_mode(paths: list[str]) -> None:
    accel.set_image_backend("cpu")
    with torch.inference_mode():
        images = accel.submit([tensor(path) for path in paths[:2]]).result(WAIT)
    assert not any(image.is_inference() for image in images)


def test_a_recorded_step_after_submitting(paths: list[str]) -> None:
    accel.set_image_backend("cpu")
    images = batch(paths)
    future = accel.submit(images)
    halves = F.normalize(images, [0.5] * 3, [0.2] * 3).half()
    future.result(WAIT)
    assert_same(halves, plain(lambda: F.normalize(batch(paths), [0.5] * 3, [0.2] * 3).half()))


# -- on an accelerator --------------------------------------------------------------------------------------


def test_streams(paths: list[str], fake: Choose, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launched on a stream of ours, which the consumer's stream waits for; nothing that the host waits for."""
    recorder = Recorder()
    inside.streams_of(monkeypatch, recorder)
    kept: list[str] = []
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda _, stream: kept.append(stream.name))
    run_on = Fake.run_on
    monkeypatch.setattr(Fake, "run_on", lambda *arguments: (recorder.launch(), run_on(*arguments))[1])
    fake(device="cpu")
    consumer = f"current of {threading.current_thread().name}"
    side = [("launch", "side of cpu"), ("record", "side of cpu")]
    arrival = ("wait", f"{consumer} for event of side of cpu")

    future = accel.submit(batch(paths))
    eventually(future.done)
    assert recorder.log == side  # nobody has waited for it
    result = future.result()
    assert recorder.log == [*side, arrival]
    assert kept == [consumer]
    assert_same(result, plain(lambda: batch(paths)))

    for use in (lambda images: images.to("cpu"), lambda images: images.pin_memory().to("cpu"), lambda x: x.numpy()):
        recorder.log.clear()
        kept.clear()
        use(batch(paths))
        assert recorder.log == [*side, arrival]
        assert kept == [consumer]


def test_a_future_owns_its_results(paths: list[str], fake: Choose) -> None:
    fake(device="cpu")
    expected = plain(lambda: batch(paths))
    images = batch(paths)
    future = accel.submit(images)
    other = images.to("cpu")
    other.zero_()
    result = future.result()
    assert_same(result, expected)
    result.zero_()
    assert_same(images.to("cpu"), expected)
    assert_same(images, expected)
    assert future.result() is result


def test_the_device_is_not_guessed(paths: list[str], fake: Choose) -> None:
    fake()
    with pytest.raises(ValueError, match="does not know its device yet"):
        accel.submit(batch(paths))
    assert Fake.runs == []
    accel.submit(batch(paths), device="cpu:0").result(WAIT)
    assert {device for _, device, _ in Fake.runs} == {CPU0}
    accel.submit(batch(paths)).result(WAIT)
    assert {device for _, device, _ in Fake.runs} == {CPU0}


def test_other_failures_surface(paths: list[str], fake: Choose) -> None:
    fake(device="cpu")
    Fake.error = MemoryError("the device is full")
    with pytest.raises(MemoryError, match="the device is full"):
        accel.submit(batch(paths)).result(WAIT)
    images = batch(paths).pin_memory()
    with pytest.raises(MemoryError, match="the device is full"):
        images.to("cpu")
    Fake.error = None
    assert_same(images.to("cpu"), plain(lambda: batch(paths)))


def test_options_are_checked(fake: Choose) -> None:
    for options, kind, text in [
        ({"prefetch": 0}, ValueError, "prefetch must be a positive int"),
        ({"prefetch": 1.5}, ValueError, "prefetch must be a positive int"),
        ({"device": "nowhere"}, ValueError, "must be a torch device"),
        ({"device": 0}, TypeError, "device must be a string or None"),
        ({"device": "meta"}, ValueError, "'fake' computes on cpu, got device='meta'"),
    ]:
        with pytest.raises(kind, match=text):
            fake(**options)


# -- processes and threads ----------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no forks")
@pytest.mark.parametrize("backend", ["cpu", "fake"])
def test_fork_after_use(paths: list[str], fake: Choose, backend: str) -> None:
    choose(backend, fake)
    expected = plain(lambda: batch(paths)).double().sum().item()
    accel.submit(batch(paths)).result(WAIT)
    Fake.gated = True
    pending, waiting = batch(paths), [batch(paths) for _ in range(4)]
    future = accel.submit(pending)
    if backend == "fake":
        waiting = [images.pin_memory() for images in waiting]

    def used() -> bool:
        """Its parent's threads are not there."""
        nonlocal waiting, pending
        Fake.gated = False
        sums = [images.double().sum().item() for images in (pending, *waiting)]
        sums.append(accel.submit(batch(paths)).result(WAIT).double().sum().item())
        del waiting, pending
        gc.collect()
        return sums == [expected] * 6

    child = in_child(used)
    assert child()
    Fake.gate.release(100)
    assert future.result(WAIT).double().sum().item() == expected
    assert [images.to("cpu").double().sum().item() for images in waiting] == [expected] * 4


def test_the_interpreter_ends_with_work_in_flight(paths: list[str]) -> None:
    code = """
import sys, accel, torch
from PIL import Image
from tests.support.loaders import batch, tensor
from tests.support.processes import eventually
from torchvision.transforms import functional as F
accel.set_image_backend("cpu")
batch = lambda: torch.stack([F.to_tensor(F.resize(Image.open(path), [200, 200])) for path in sys.argv[1:]])
futures = [accel.submit(batch()) for _ in range(40)]
futures[0].result()
import atexit
atexit.register(lambda: print(accel.submit(batch()).result().shape[0], flush=True))
"""
    colours = [path for number, path in enumerate(paths) if number % 5 != 4]
    assert helpers.python(code, *colours) == f"{len(colours)}\n"


def test_nothing_is_left_behind(paths: list[str]) -> None:
    accel.set_image_backend("cpu")

    def once() -> None:
        accel.submit([tensor(paths[0]), tensor(paths[1], 30)]).result(WAIT)
        accel.submit(tensor(paths[2]))  # whose result nobody wants

    for _ in range(20):
        once()
    gc.collect()
    gc.disable()  # what goes must go without its help
    try:
        before = [threading.active_count(), _count(accel.Future), _count(accel.LazyTensor)]
        for _ in range(200):
            once()
        eventually(lambda: accel.stats()["in flight"] == 0)
        eventually(lambda: [threading.active_count(), _count(accel.Future), _count(accel.LazyTensor)] <= before)
    finally:
        gc.enable()


def _count(kind: type) -> int:
    return sum(type(thing) is kind for thing in gc.get_objects())


def test_late_is_told(paths: list[str], fake: Choose) -> None:
    fake(device="cpu", prefetch=1)
    Fake.gated = True
    first, second, third = (batch(paths[:2]) for _ in range(3))
    first.pin_memory()
    second.pin_memory()
    assert "launched on cpu" in accel.explain(first)
    assert "waits for its turn" in accel.explain(second)
    assert "submitted" not in accel.explain(third)
    assert (accel.stats()["in flight"], accel.stats()["waiting"]) == (1, 1)
    assert is_lazy(first)
    Fake.gate.release(10)
    first.to("cpu")
    second.to("cpu")
    assert (accel.stats()["in flight"], accel.stats()["waiting"]) == (0, 0)


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_a_view_that_is_submitted_stays_one(paths: list[str], backend: str) -> None:
    def changed(submits: bool) -> torch.Tensor:
        whole = torch.stack([F.pil_to_tensor(open_rgb(path).resize((20, 16))) for path in paths[:3]])
        view = whole[1]
        if submits:
            accel.submit([view]).result()
        whole.add_(1)
        return view + 0

    expected = changed(False)
    with accel.image_backend(backend, **({"device": "cpu"} if backend == "cuda" else {})):
        assert torch.equal(changed(True), expected)
