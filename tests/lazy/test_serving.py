"""accel.submit for servers: each item's result or its error, streams, many requests at once."""

import asyncio
import concurrent.futures
import gc
import sys
import threading
import types
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as T
from torchvision import tv_tensors
from torchvision.transforms import functional as F
from torchvision.transforms import v2

import accel
from accel.errors import emptied
from accel.lazy import submit as submitting
from accel.runtime import compute
from tests.support import inside
from tests.support.fake_accelerator import CPU, Fake, Recorder, installed
from tests.support.helpers import assert_same, jpeg, undecodable
from tests.support.processes import eventually, plain

Choose = Callable[..., None]
WAIT = 300
STEPS = T.Compose([T.Resize(24), T.CenterCrop(20), T.ToTensor(), T.Normalize([0.5] * 3, [0.2] * 3)])
BACKENDS = ("cpu", "fake", "cuda")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Choose]:
    with installed(monkeypatch) as choose:
        yield choose


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, fake: Choose) -> str:
    name: str = request.param
    if name == "fake":
        fake(device="cpu")
    else:
        accel.set_image_backend(name, **({"device": "cpu"} if name == "cuda" else {}))
    return name


def good(seed: int = 0, steps: Callable[[Any], Any] = STEPS) -> Any:
    return steps(Image.open(BytesIO(jpeg(48, 40, seed=seed))))


def bad(seed: int = 0) -> Any:
    return STEPS(Image.open(BytesIO(undecodable(seed=seed))))


def expected(seed: int = 0, steps: Callable[[Any], Any] = STEPS) -> Any:
    return plain(lambda: good(seed, steps))


def is_error(found: Any) -> bool:
    """Whether it is the error of one image, as if that had been submitted alone."""
    return isinstance(found, accel.DecodeError) and str(found).startswith("<bytes>: ") and "of a" not in str(found)


def returned(images: Any, **options: Any) -> Any:
    return accel.submit(images, errors="return", **options).result(WAIT)


# -- each item's result or its error ------------------------------------------------------------------------


@pytest.mark.parametrize("broken", [{3}, {0}, {5}, {1, 4}, set(range(6)), set()], ids=str)
def test_one_bad_image_does_not_fail_the_others(backend: str, broken: set[int]) -> None:
    images = [bad(seed) if seed in broken else good(seed) for seed in range(6)]
    future = accel.submit(images, errors="return")
    found = future.result(WAIT)
    assert future.exception() is None
    for seed, each in enumerate(found):
        if seed in broken:
            assert is_error(each), each
        else:
            assert_same(each, expected(seed))
            assert each.sum() == images[seed].sum()
    assert all(one is other for one, other in zip(future.result(), found, strict=True))
    for seed in broken:  # a lazy image itself is as it was
        with pytest.raises(accel.DecodeError, match="<bytes>"):
            images[seed].sum()


def test_what_failed_together_is_computed_without_what_failed(fake: Choose) -> None:
    """One bad image costs one more run of the others; several cost one of each."""
    fake(device="cpu")
    returned([good(0), good(1), bad(2), good(3)])
    assert sorted(len(names) for names, _, _ in Fake.runs) == [1, 3, 4]
    Fake.runs.clear()
    returned([good(0), bad(1), bad(2), good(3)])
    assert sorted(len(names) for names, _, _ in Fake.runs) == [1, 1, 1, 1, 3, 4]


def test_several_sizes_and_a_batch(backend: str) -> None:
    """Images of other shapes are other programs; a batch in one tensor is one item."""
    small = T.Compose([T.Resize(16), T.CenterCrop(12), T.ToTensor()])
    batches = [torch.stack([good(1), bad(2)]), torch.stack([good(3), good(4)])]
    found = returned([good(0), *batches, good(5, small), bad(6), None])
    assert_same(found[0], expected(0))
    assert isinstance(found[1], accel.DecodeError)
    assert "image 1 of a batch of 2" in str(found[1])
    assert_same(found[2], plain(lambda: torch.stack([good(3), good(4)])))
    assert_same(found[3], expected(5, small))
    assert is_error(found[4])
    assert found[5] is None


def test_nothing_and_what_is_not_lazy(backend: str) -> None:
    assert returned([]) == []
    failed, eager = ValueError("no image"), torch.ones(2)
    found = returned((failed, good(0), eager))  # as of a request that could not be opened
    assert found[0] is failed
    assert_same(found[1], expected(0))
    assert found[2] is eager
    assert is_error(returned(bad()))
    assert_same(returned(good(1)), expected(1))
    picture = Image.open(BytesIO(undecodable()))
    assert isinstance(returned([picture])[0], accel.DecodeError)


def test_other_errors_than_of_decoding(fake: Choose, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too much together is computed one by one; each has its own error."""

    def full(run: Any, backend: Any, plan: Any, device: Any) -> Any:
        if len(plan.decodes) > 1 or plan.decodes[0].box[2:] == (64, 64):
            raise MemoryError("the device is full")
        return run(backend, plan, device)

    inside.wrap(monkeypatch, Fake, "run_on", full)
    fake(device="cpu")
    square = Image.open(BytesIO(jpeg(64, 64)))
    found = returned([good(0), F.normalize(F.to_tensor(F.resize(square, [20, 20])), [0.5] * 3, [0.2] * 3), good(1)])
    assert_same(found[0], expected(0))
    assert isinstance(found[1], MemoryError)
    assert found[1].__traceback__ is None
    assert sys.version_info < (3, 11) or "raise MemoryError" in found[1].__notes__[0]  # where it was raised
    assert_same(found[2], expected(1))


def test_errors_of_the_users_own_transforms(backend: str) -> None:
    """They are raised where they are recorded, and leave what was recorded before them as it is."""

    def opened(seed: int) -> Any:
        try:
            return T.Lambda(lambda image: image if seed else 1 / 0)(good(seed))
        except ZeroDivisionError as error:
            return error

    found = returned([opened(0), opened(1)])
    assert isinstance(found[0], ZeroDivisionError)
    assert_same(found[1], expected(1))


def test_an_image_that_is_used_first_is_not_computed_again(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = v2.Compose([v2.ToImage(), v2.CenterCrop(20)])
    images = [good(0), good(1, steps), torch.stack([good(2), good(3)])]
    future = accel.submit(images, errors="return")
    for image in images:
        image.sum()
    eventually(future.done)
    runs = [inside.spy(monkeypatch, compute, name) for name in ("tensors", "tensors_on")]
    found = future.result()
    assert runs == [[], []]
    assert_same(found, [expected(0), expected(1, steps), plain(lambda: torch.stack([good(2), good(3)]))])
    assert type(found[1]) is tv_tensors.Image
    assert all((one is image) == (backend == "cpu") for one, image in zip(found, images, strict=True))


def test_replaced_files_are_no_errors() -> None:
    with accel.image_backend("cpu", on_error="replace"):
        images = [good(0), bad(1)]
    assert_same(returned(images)[0], expected(0))
    assert not isinstance(returned(images)[1], Exception)


def test_wrong_arguments(paths: list[str]) -> None:
    accel.set_image_backend("cpu")
    with pytest.raises(ValueError, match="errors must be 'raise' or 'return', got 'ignore'"):
        accel.submit(good(), errors="ignore")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="stream must be a stream of a device, got 3"):
        accel.submit(good(), stream=3)
    for stream in (torch.zeros(1), torch.Stream, torch.device("cpu")):  # the first two have a ``device``, of a kind
        with pytest.raises(TypeError, match="stream must be a stream of a device, got"):
            accel.submit(good(), stream=stream)
    with pytest.raises(TypeError, match="or a list or tuple of such, got <generator"):
        accel.submit(good(seed) for seed in range(2))
    for images in ([good(0), [good(1)]], [(None, good(0))]):
        with pytest.raises(
            TypeError, match=r"each image must be one lazy image or tensor, got a (list of 1|tuple of 2)"
        ):
            accel.submit(images)
    assert returned([[1, 2], ()]) == [[1, 2], ()]
    with pytest.raises(ValueError, match="results are on the host, and cannot be used on a stream of cuda:0"):
        accel.submit(good(), stream=types.SimpleNamespace(device=torch.device("cuda", 0)))


def test_a_device_that_does_not_exist_is_not_learned(fake: Choose, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fake, "devices", ("cpu", "cuda"))
    fake(device="cpu")
    number = torch.cuda.device_count() + 3
    for use in (lambda: accel.submit(good(), f"cuda:{number}"), lambda: good().to(f"cuda:{number}")):
        with pytest.raises(RuntimeError, match=f"there is no device cuda:{number}: torch finds"):
            use()
        assert_same(returned(good()), expected())


def test_what_cannot_be_submitted_again_is_computed_by_who_asks(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As without memory: the future is done all the same, with each item's result or its error."""
    calls: list[int] = []

    def full(coalesce: Any, states: Any) -> Any:
        calls.append(len(states))
        if len(calls) > 1:
            raise MemoryError("no memory to submit again")
        return coalesce(states)

    inside.wrap(monkeypatch, submitting, "coalesce", full)
    found = returned([good(0), bad(1), good(2)])
    assert calls == [3, 1, 2]
    assert_same(found[0], expected(0))
    assert is_error(found[1])
    assert_same(found[2], expected(2))


# -- what an error keeps ------------------------------------------------------------------------------------


def held(error: BaseException | None) -> list[Any]:
    """Pixels and encoded bytes that an exception, its causes and the variables of their frames lead to."""
    found: list[Any] = []
    seen: set[int] = set()
    todo: list[Any] = []
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename != __file__:
                todo.extend(trace.tb_frame.f_locals.values())
            trace = trace.tb_next
        error = error.__cause__ or error.__context__
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, (type, types.ModuleType, types.FunctionType, types.FrameType)):
            continue
        seen.add(id(each))
        if isinstance(each, (torch.Tensor, np.ndarray)) or (isinstance(each, (bytes, memoryview)) and len(each) > 500):
            found.append(each)
        else:
            todo.extend(gc.get_referents(each))
    return found


def test_an_error_keeps_no_pixels(backend: str) -> None:
    found = returned([good(0), bad(1), bad(2)])
    assert held(found[1]) == held(found[2]) == []
    with pytest.raises(accel.DecodeError) as raised:
        compute.tensors([Image.open(BytesIO(undecodable())).recipe])  # type: ignore[attr-defined]
    assert held(raised.value) != []  # as it would be
    assert held(emptied(raised.value)) == []


# -- cancelled, and many at once ----------------------------------------------------------------------------


def test_cancelling(fake: Choose) -> None:
    fake(device="cpu")
    Fake.gated = True
    busy = [accel.submit(good(seed)) for seed in range(4)]
    image = good(9)
    future = accel.submit([image, bad(1)], errors="return")
    assert future.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        future.result()
    Fake.gate.release(100)
    assert_same(image.numpy(), expected(9).numpy())
    for seed, other in enumerate(busy):
        assert_same(other.result(WAIT), expected(seed))


def test_waiting_is_given_up(backend: str) -> None:
    """Who waits no longer takes nothing from those who still do."""

    async def serve() -> Any:
        shared = asyncio.wrap_future(accel.submit([good(0), bad(1), good(2)], errors="return"))
        gone = asyncio.create_task(asyncio.wait_for(asyncio.shield(shared), WAIT))
        asyncio.get_running_loop().call_soon(gone.cancel)
        with pytest.raises(asyncio.CancelledError):
            await gone
        return await shared

    found = asyncio.run(serve())
    assert_same(found[0], expected(0))
    assert is_error(found[1])
    assert_same(found[2], expected(2))


def test_many_threads(backend: str) -> None:
    wanted = {seed: expected(seed) for seed in range(8)}
    wrong: list[Any] = []

    def client(number: int) -> None:
        for turn in range(6):
            seeds = [(number + turn + n) % 8 for n in range(5)]
            found = returned([bad(seed) if seed % 3 == 0 else good(seed) for seed in seeds])
            for seed, each in zip(seeds, found, strict=True):
                if not (is_error(each) if seed % 3 == 0 else torch.equal(each, wanted[seed])):
                    wrong.append((seed, each))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert wrong == []
    eventually(lambda: (accel.stats()["in flight"], accel.stats()["waiting"]) == (0, 0))


def counted() -> list[int]:
    """Futures, lazy tensors, errors, tensors of pixels, and tracebacks but those that Python's own pools leave behind,
    of a queue that was empty (3.13)."""
    things = gc.get_objects()
    kinds = (accel.Future, accel.LazyTensor, accel.DecodeError)
    pixels = sum(type(thing) is torch.Tensor and thing.dim() > 2 for thing in things)
    frames = [thing.tb_frame for thing in things if type(thing) is types.TracebackType]
    ours = sum(frame.f_globals["__name__"] != "concurrent.futures.thread" for frame in frames)
    return [*(sum(type(thing) is kind for thing in things) for kind in kinds), pixels, ours]


def test_a_thousand_requests_leave_nothing(fake: Choose) -> None:
    """Without the garbage collector's help."""
    fake(device="cpu")

    def once(number: int) -> None:
        returned([good(0), bad(1)] if number % 2 else [good(0)])
        if number % 10 == 0:
            accel.submit([good(0), bad(1)], errors="return")  # which nobody waits for

    for number in range(20):
        once(number)
    eventually(lambda: accel.stats()["in flight"] == 0)
    gc.collect()
    gc.disable()
    try:
        before, threads = counted(), threading.active_count()
        for number in range(1000):
            once(number)
        eventually(lambda: accel.stats()["in flight"] == 0)
        eventually(lambda: all(now <= then for now, then in zip(counted(), before, strict=True)))
        assert threading.active_count() <= threads + 2  # of a queue's, which start as they are needed
    finally:
        gc.enable()


# -- streams ------------------------------------------------------------------------------------------------


def test_a_stream_of_the_users(fake: Choose, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for the results, in place of the current one; and so do steps that were recorded since."""
    recorder = Recorder()
    inside.streams_of(monkeypatch, recorder)
    kept: list[str] = []
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda _, stream: kept.append(stream.name))
    fake(device="cpu")
    own = recorder.Stream(CPU)
    own.device = CPU
    image = good(0)
    future = accel.submit(image, stream=own)
    half = image.half()
    eventually(future.done)
    recorder.log.clear()
    result = future.result()
    assert recorder.log == [("wait", "side of cpu for event of side of cpu")]
    assert recorder.current_stream().name == f"current of {threading.current_thread().name}"
    assert kept == [own.name]
    assert_same(result, expected(0))
    assert_same(half.to("cpu"), expected(0).half())
    with pytest.raises(ValueError, match="results are on cpu, and cannot be used on a stream of cuda:1"):
        accel.submit(good(), stream=types.SimpleNamespace(device=torch.device("cuda", 1)))
