"""What belongs to a GPU's context, without a GPU: a forked child that frees it ends, as it does with torch."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from accel.backends.cuda import host
from tests.support import inside

STATUS = 66


class Owned:
    """Something that only the process that made it may free."""

    _process: int | None = None

    def __init__(self, *_: Any, **__: Any) -> None:
        self._process = os.getpid()

    def __del__(self, getpid: Any = os.getpid, leave: Any = os._exit) -> None:  # also when modules have gone
        if self._process not in (None, getpid()):
            leave(STATUS)


class Pinned(Owned, np.ndarray):  # type: ignore[type-arg]
    """Pinned memory."""


class Event(Owned):
    """A place in a stream, reached once somebody waits for it."""

    reached = False

    def query(self) -> bool:
        return self.reached

    def synchronize(self) -> None:
        self.reached = True


class Stream(Owned):
    def record_event(self) -> Event:
        return Event()

    def wait_event(self, event: Event) -> None:
        event.synchronize()


class Module:
    """torch's module of the device."""

    Stream = Stream

    def __init__(self) -> None:
        self._current: dict[int, Stream] = {}  # by thread, as torch has it: a child frees nothing of other threads
        self._default = Stream()
        self._default._process = None  # it is the device's

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before = self.current_stream()
        self._current[threading.get_ident()] = stream
        yield
        self._current[threading.get_ident()] = before

    def current_stream(self, device: Any = None) -> Stream:
        return self._current.get(threading.get_ident(), self._default)


def _pinned(self: Any, size: int) -> torch.Tensor:
    memory = np.full(size, 171, np.uint8).view(Pinned)
    Owned.__init__(memory)
    return torch.from_numpy(memory)


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the cuda backend's stand-in for a device make such things."""
    module = Module()
    monkeypatch.setattr(host.HostDevice, "pinned", _pinned)
    monkeypatch.setattr(host.HostDevice, "mark", lambda self: Event())
    inside.streams_of(monkeypatch, lambda device: module)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
