"""Simulating machines of many cores: a backend that sleeps instead of computing, and patches that hide it.

A worker that sleeps takes nothing from the others, so 64 of them fit on two cores as if each had its own; no more sleep
at a time than the simulated machine has cores. The profiler must see that number of cores, and slept time as CPU time:
only the functions by which it asks the system (``machine``, and the clocks of CPU time) are patched.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from typing import ClassVar
from unittest import mock

import torch

from accel import backend
from accel.backend import AcceleratorBackend, HostBackend
from accel.planning.plan import Plan
from accel.profiling import collect
from accel.profiling.measured import Machine
from accel.recipes.options import AcceleratorOptions, Options
from accel.system.memory import Allocate
from accel.system.timing import clocks

HOST, DEVICE = "sleeping", "sleeping_device"


@dataclass(frozen=True)
class SleepingOptions(Options):
    """``ms``: the time of an image on one thread."""

    ms: float = 4.0


class SleepingBackend(HostBackend):
    """A host backend that sleeps for each image, and returns zeros."""

    Options: ClassVar[type[Options]] = SleepingOptions

    def run(self, plan: Plan, allocate: Allocate) -> torch.Tensor:
        slept(plan.shape[0] * self.options.ms / 1000)
        return plan.empty(allocate).zero_()


@dataclass(frozen=True)
class SleepingDeviceOptions(AcceleratorOptions):
    ms: float = 0.0


class SleepingDevice(AcceleratorBackend):
    """The same as an accelerator's backend: workers send recipes, which are computed in the main process."""

    Options: ClassVar[type[Options]] = SleepingDeviceOptions
    devices = ("meta",)

    def run_on(self, plan: Plan, device: torch.device) -> torch.Tensor:
        time.sleep(plan.shape[0] * self.options.ms / 1000)
        return torch.zeros(plan.shape, dtype=plan.dtype)


@contextmanager
def installed() -> Iterator[None]:
    """A context in which both backends are known by their names."""
    entries = [
        EntryPoint(name, f"{__name__}:{kind.__name__}", backend.GROUP)
        for name, kind in ((HOST, SleepingBackend), (DEVICE, SleepingDevice))
    ]
    with mock.patch.object(backend, "entry_points", lambda group: (*entry_points(group=group), *entries)):
        yield


# -- time slept as time computed ----------------------------------------------------------------------------

_here = threading.local()
_slept_ns = 0
_a_core: AbstractContextManager[object] = nullcontext()
"""Held while a thread sleeps, as one of the simulated cores."""


def slept(seconds: float) -> None:
    """Sleep, and count it as computing of this thread and process."""
    global _slept_ns
    with _a_core:
        begin = time.perf_counter_ns()
        time.sleep(seconds)
        took = time.perf_counter_ns() - begin
    _here.ns = getattr(_here, "ns", 0) + took
    _slept_ns += took


def thread_cpu_ns() -> int:
    """The thread's CPU time, including slept time."""
    return time.thread_time_ns() + int(getattr(_here, "ns", 0))


def process_cpu_ns() -> int:
    """The process's CPU time, including slept time."""
    return time.process_time_ns() + _slept_ns


@contextmanager
def machine(cores: int) -> Iterator[None]:
    """A context with ``cores`` simulated cores, also for processes that are forked inside; the profiler sees only
    these, used by this script alone, and slept time as CPU time."""
    original = collect.machine

    def told() -> Machine:
        return replace(original(), cores=cores, cores_all=cores, busy=None)

    with ExitStack() as stack:
        stack.enter_context(mock.patch(f"{__name__}._a_core", multiprocessing.get_context("fork").Semaphore(cores)))
        stack.enter_context(mock.patch.object(collect, "machine", told))
        stack.enter_context(mock.patch.object(clocks, "cpu_ns", thread_cpu_ns))
        stack.enter_context(mock.patch.object(clocks, "process_cpu_ns", process_cpu_ns))
        yield
