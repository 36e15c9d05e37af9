"""An accelerator backend without an accelerator: its devices are the host's, its hands the cpu backend's.

It can be held up, made to fail, and says what it was asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any

import pytest
import torch
from torch.utils.data._utils import pin_memory as pin_step

from accel import backend
from accel.backend import AcceleratorBackend, AcceleratorOptions
from accel.system import memory
from tests.support import inside

CPU, CPU0 = torch.device("cpu"), torch.device("cpu:0")  # two devices, for torch tells them apart


@dataclass(frozen=True)
class FakeOptions(AcceleratorOptions):
    run: int = 0
    """Sets tests apart: what one learns another does not know."""


class Fake(AcceleratorBackend):
    Options = FakeOptions
    devices = ("cpu",)

    runs: list[tuple[list[str], torch.device, str]] = []  # noqa: RUF012  files, device, thread
    gate = threading.Semaphore(0)
    gated = False
    error: Exception | None = None

    def prepare(self) -> None:
        self.on_host.prepare()

    def describe(self, plan: Any) -> list[str]:
        return ["runs: as if"]

    def run_on(self, plan: Any, device: torch.device) -> torch.Tensor:
        if Fake.gated:
            assert Fake.gate.acquire(timeout=60)
        names = [decode.source.name for decode in plan.decodes]
        Fake.runs.append((names, device, threading.current_thread().name))
        if Fake.error is not None:
            raise Fake.error
        return self.on_host.run(plan, memory.results.empty)


@contextmanager
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Have ``image_backend("fake")`` known; yields what chooses it, with options."""
    entry = EntryPoint("fake", "tests.support.fake_accelerator:Fake", backend.GROUP)
    inside.wrap(monkeypatch, backend, "_entry_points", lambda known, **_: {**known(), "fake": entry})
    Fake.runs, Fake.gate, Fake.gated, Fake.error = [], threading.Semaphore(0), False, None
    installed.run += 1  # type: ignore[attr-defined]

    def choose(**options: Any) -> None:
        import accel

        accel.set_image_backend("fake", run=installed.run, **options)  # type: ignore[attr-defined]

    try:
        yield choose
    finally:
        Fake.gated = False
        Fake.gate.release(1000)


installed.run = 0  # type: ignore[attr-defined]


def have_pin_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have torch believe in a device, for which it runs its own pin thread."""
    original = pin_step.pin_memory

    def pin_memory(data: Any, *device: Any) -> Any:
        """torch's, which recurs through this name; what is not lazy cannot be pinned without a device."""
        return data if type(data) is torch.Tensor else original(data, *device)

    monkeypatch.setattr(pin_step, "pin_memory", pin_memory)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.accelerator, "set_device_index", lambda _: None)


class Recorder:
    """Stands in for torch's module of a device with streams: who launched, waited and kept what, in order."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str]] = []
        self._current = threading.local()

    def __call__(self, device: torch.device) -> Recorder:
        return self

    def Stream(self, device: torch.device) -> _Stream:
        return _Stream(self, f"side of {device}")

    @contextmanager
    def stream(self, stream: _Stream) -> Iterator[None]:
        before, self._current.stream = self.current_stream(), stream
        try:
            yield
        finally:
            self._current.stream = before

    def current_stream(self, device: Any = None) -> _Stream:
        own = _Stream(self, f"current of {threading.current_thread().name}")
        return getattr(self._current, "stream", own)

    def is_initialized(self) -> bool:
        return True

    def set_device(self, index: int) -> None:
        self._current.device = index

    def current_device(self) -> int:
        return getattr(self._current, "device", 0)

    def launch(self, *_: Any) -> None:
        self.log.append(("launch", self.current_stream().name))


class _Stream:
    def __init__(self, recorder: Recorder, name: str) -> None:
        self.recorder = recorder
        self.name = name

    def record_event(self) -> str:
        self.recorder.log.append(("record", self.name))
        return f"event of {self.name}"

    def wait_event(self, event: str) -> None:
        self.recorder.log.append(("wait", f"{self.name} for {event}"))

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the host would wait, or worse: Stream.{name}")
