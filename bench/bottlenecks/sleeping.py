"""Machines of many cores on a small one: a backend whose computing is sleep, and what tells the profiler of it.

A worker that sleeps takes nothing from the others, so 64 of them fit on two cores as if each had its own; no more sleep
at a time than the machine has cores. Two things have to be told: how many these are, and that slept time was computing.
Both are said where the profiler asks the system (``machine``, and the clocks of CPU time); what it makes of the answers
is its own.
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
from accel.options import AcceleratorOptions, Options
from accel.planning.plan import Plan
from accel.profiling import collect
from accel.profiling.measured import Machine
from accel.system import clocks
from accel.system.memory import Allocate

HOST, DEVICE = "sleeping", "sleeping_device"


@dataclass(frozen=True)
class SleepingOptions(Options):
    """``ms``: what an image takes, on one thread."""

    ms: float = 4.0


class SleepingBackend(HostBackend):
    """A host backend that sleeps for each image, and gives zeros."""

    Options: ClassVar[type[Options]] = SleepingOptions

    def run(self, plan: Plan, allocate: Allocate) -> torch.Tensor:
        slept(plan.shape[0] * self.options.ms / 1000)
        return plan.empty(allocate).zero_()


@dataclass(frozen=True)
class SleepingDeviceOptions(AcceleratorOptions):
    ms: float = 0.0


class SleepingDevice(AcceleratorBackend):
    """The same as an accelerator: workers send recipes, and the main process has them computed."""

    Options: ClassVar[type[Options]] = SleepingDeviceOptions
    devices = ("meta",)

    def run_on(self, plan: Plan, device: torch.device) -> torch.Tensor:
        time.sleep(plan.shape[0] * self.options.ms / 1000)
        return torch.zeros(plan.shape, dtype=plan.dtype)


@contextmanager
def installed() -> Iterator[None]:
    """Inside the block both backends are known by their names."""
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
"""Who sleeps has one of the machine's cores."""


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
    """The thread's CPU time, with what it slept."""
    return time.thread_time_ns() + int(getattr(_here, "ns", 0))


def process_cpu_ns() -> int:
    """The process's."""
    return time.process_time_ns() + _slept_ns


@contextmanager
def machine(cores: int) -> Iterator[None]:
    """Inside the block there are ``cores`` for those who sleep, also processes that are forked there; the profiler is
    told of them, for this script alone, and that who sleeps computes."""
    original = collect.machine

    def told() -> Machine:
        return replace(original(), cores=cores, cores_all=cores, busy=None)

    with ExitStack() as stack:
        stack.enter_context(mock.patch(f"{__name__}._a_core", multiprocessing.get_context("fork").Semaphore(cores)))
        stack.enter_context(mock.patch.object(collect, "machine", told))
        stack.enter_context(mock.patch.object(clocks, "cpu_ns", thread_cpu_ns))
        stack.enter_context(mock.patch.object(clocks, "process_cpu_ns", process_cpu_ns))
        yield
