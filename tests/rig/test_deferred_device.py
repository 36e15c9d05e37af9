"""Batches on a device that runs everything as late as it may (rig/deferred_device.py)."""

from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import functional as F

import accel
from accel.backends.cuda import CudaBackend, CudaOptions, backend, pinned_pool
from accel.backends.cuda.jpeg import index, requests
from accel.codec import jpeg as codec_jpeg
from accel.planning.plan import FinishedPlan, plan
from accel.processes import sent_files
from accel.recipes.arrived import Arrived
from accel.recipes.rows import Form, Rows, Slot, Structure
from accel.runtime import compute, streams
from rig.deferred_device import DEVICE, DeferredDevice, DeferredStream
from tests.support import inside
from tests.support.cuda import host_only, needs_compiler, stacked
from tests.support.helpers import jpeg, undecodable
from tests.support.jpeg import with_room

pytestmark = [needs_compiler, host_only]
FLOAT = torch.float32


def files(seed: int) -> list[bytes]:
    return [jpeg(60 + 3 * n, 75 - n, seed=10 * seed + n) for n in range(5)]


def batch(data: list[bytes]) -> torch.Tensor:
    """With a crop, an effect, a resize and a patch each."""

    def transform(image: Image.Image) -> torch.Tensor:
        image = F.resize(F.equalize(F.crop(image, 3, 5, 50, 40)), [30, 35], F.InterpolationMode.LANCZOS)
        return F.erase(F.normalize(F.to_tensor(image), [0.4] * 3, [0.3] * 3), 2, 3, 9, 8, torch.ones(3, 9, 8))

    return stacked([Image.open(BytesIO(each)) for each in data], transform)


class Deferred(NamedTuple):
    device: DeferredDevice
    backend: CudaBackend

    def submitted(self, data: list[bytes]) -> tuple[torch.Tensor, Any]:
        with accel.image_backend("cuda", device="cpu"):
            late: Any = batch(data)
        wanted = plan(late.lazy.recipes)
        return streams.aside(DEVICE, lambda: self.backend.run_on(wanted, DEVICE))

    def read(self, result: torch.Tensor, event: Any) -> list[torch.Tensor]:
        """The values that the caller's stream will read, once that runs."""
        streams.arrive(result, event)
        return self.device.current_stream().read(result)

    def finish(self) -> None:
        stream = self.device.current_stream()
        stream.run_to(stream.queued)


@pytest.fixture
def deferred(monkeypatch: pytest.MonkeyPatch) -> Deferred:
    return made_deferred(monkeypatch)


def made_deferred(monkeypatch: pytest.MonkeyPatch, **options: Any) -> Deferred:
    device = DeferredDevice()
    monkeypatch.setattr(backend.host, "HostDevice", lambda: device)
    inside.streams_of(monkeypatch, device)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: device.record(tensor, stream))
    running = CudaBackend(CudaOptions(device="cpu", **options))
    made = Deferred(device, running)
    made.submitted(files(99))  # decoders and encoders are tried, with waiting
    return made


def expected(data: list[bytes]) -> torch.Tensor:
    with accel.image_backend("torchvision"):
        return batch(data)


def right(deferred: Deferred, count: int = 9, make: Callable[[int], list[bytes]] = files) -> list[bool]:
    """Which of many batches come out right, submitted and dropped before anything of them runs."""
    found = []
    for seed in range(count):
        result, event = deferred.submitted(make(seed))
        found.append(deferred.read(result, event))
        del result, event
    deferred.finish()
    return [torch.equal(values[0], expected(make(seed))) for seed, values in enumerate(found)]


def test_many_batches_in_flight(deferred: Deferred) -> None:
    assert right(deferred) == [True] * 9
    assert deferred.device.launched > 9 * 10


def test_files_that_are_flagged_are_filled_in_behind(deferred: Deferred) -> None:
    def damaged(seed: int) -> list[bytes]:
        data = files(seed)
        data[2] = jpeg(66, 73, seed=seed, progressive=True)
        marker = data[1].index(b"\xff\xd9")
        data[1] = data[1][:marker] + b"\x55" + data[1][marker:]  # bits are left over
        return data

    assert right(deferred, 4, damaged) == [True] * 4


def test_files_with_indexes_in_flight(deferred: Deferred, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every other file one is known, of the others one is made."""
    request_of, made = requests.request_of, list[int]()

    def known(*arguments: Any) -> Any:
        wanted, noted = request_of(*arguments), codec_jpeg.Index()
        if len(wanted.data) % 2:
            codec_jpeg.decode(wanted.data, index=noted)
        return wanted._replace(known=noted.bytes.copy())

    written = index.written
    monkeypatch.setattr(requests, "request_of", known)
    monkeypatch.setattr(index, "written", lambda *arguments: made.extend(arguments[0]) or written(*arguments))
    assert right(deferred, 6, lambda seed: [with_room(each) for each in files(seed)]) == [True] * 6
    assert 0 < len(made) < 6 * 5


def test_finished_work_in_flight(deferred: Deferred) -> None:
    """Submitted, and its slot filled with something else, before anything of it runs; a hole, and a flagged file."""
    structure = Structure.of(
        Form("crop", (Slot(0), 5, 30, 41)),
        Form("resize", (20, 24, 2)),
        Form("hflip", (), 1),
        Form("to_tensor", (FLOAT,)),
    )

    def rows(seed: int) -> Rows:
        data = files(seed)
        data[2] = jpeg(66, 73, seed=seed, progressive=True)
        marker = data[1].index(b"\xff\xd9")
        data[1] = data[1][:marker] + b"\x55" + data[1][marker:]  # bits are left over
        sources = [F.pil_to_tensor(Image.open(BytesIO(each))).lazy.recipes[0].source for each in data]
        return Rows(sources, structure, np.array([(n + seed, n % 2) for n in range(len(data))]))

    def declined() -> int:
        return int(accel.stats()["fallbacks"].get("accel declined a JPEG on the device; the host decoded it", 0))

    before = declined()
    for seed in range(6):
        with accel.image_backend("cuda", device="cpu"):
            one_by_one = plan(list(rows(seed)))
        streams.aside(DEVICE, partial(deferred.backend.run_on, one_by_one, DEVICE))
    deferred.finish()
    flagged = declined() - before
    assert flagged >= 1
    found, expected = [], []
    for seed in range(6):
        with accel.image_backend("cuda", device="cpu"):
            own = rows(seed)
            packed = sent_files.pack(own)
        with accel.image_backend("cpu"):
            expected.append(compute.tensors(list(rows(seed))))
        assert packed is not None
        sent = sent_files.unpack(packed)
        assert isinstance(sent, Arrived)
        planned = FinishedPlan.of(sent)
        result, event = streams.aside(DEVICE, partial(deferred.backend.run_on, planned, DEVICE))
        packed.data.fill_(0xEE)
        found.append(deferred.read(result, event))
        del result, event, planned, sent
    deferred.finish()
    assert [torch.equal(values[0], wanted) for values, wanted in zip(found, expected, strict=True)] == [True] * 6
    assert declined() - before == 2 * flagged  # no other: its coefficients began as zeros


def test_chunks_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    assert right(made_deferred(monkeypatch, memory=60_000), 4) == [True] * 4


def test_decoding_on_the_host_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    assert right(made_deferred(monkeypatch, decode="host")) == [True] * 9


def test_a_batch_that_fails_leaves_the_others_right(deferred: Deferred) -> None:
    found = []
    for seed in range(4):
        with pytest.raises(accel.DecodeError):
            deferred.submitted([*files(seed), undecodable(66, 73)])
        result, event = deferred.submitted(files(seed))
        found.append(deferred.read(result, event))
        del result, event
    deferred.finish()
    assert all(torch.equal(values[0], expected(files(seed))) for seed, values in enumerate(found))


@pytest.mark.parametrize("early", [False, True])
def test_a_mark_that_stands_too_early_would_show(early: bool) -> None:
    """The host's memory is written to before it was sent."""
    device, found = DeferredDevice(), []
    pool, stream = pinned_pool.PinnedPool(device.pinned), device.current_stream()
    with device.enter():
        for number in range(3):
            memory, sent = pool.take(9), device.scratch(9)
            memory.fill_(number)
            sent.copy_(memory[: len(sent)], non_blocking=True)
            pool.give_back(memory, None if early else device.mark())
            found.append(stream.read(sent))
    stream.run_to(stream.queued)
    assert [int(each[0]) for (each,) in found] == ([2, 2, 2] if early else [0, 1, 2])


def test_a_caller_that_does_not_wait_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    deferred = made_deferred(monkeypatch, decode="host")  # which waits for no batch before it
    monkeypatch.setattr(DeferredStream, "wait_event", lambda self, event: None)
    assert not any(right(deferred, 3))


def test_a_result_that_is_not_recorded_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    deferred = made_deferred(monkeypatch)
    monkeypatch.setattr(DeferredDevice, "record", lambda self, tensor, stream: None)
    assert not any(right(deferred, 3))
