"""Clocks: how long each stage of the input pipeline takes in this process, as plain data.

A *stage* is a function that ``timed`` has been put around. Its time is its own: that of stages inside it is taken off.
Each thread counts for itself. What a process has counted is written where others see it by ``accel.system.measuring``,
which also says when clocks run; only then they are put around the functions (``accel.profiling.stages``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import numpy.typing as npt

from accel.system import fork

STAGES: tuple[str, ...] = ("idle", "read", "record", "decode", "transform", "kernels", "user", "collate", "send")
STAGES += ("wait", "unpack", "plan", "launch", "copy", "step", "made", "gil")
"""The stages, and what is counted like one: a worker's batches, and how late a thread came to have the GIL."""

IDLE, READ, RECORD, DECODE, TRANSFORM, KERNELS, USER, COLLATE, SEND = range(9)
WAIT, UNPACK, PLAN, LAUNCH, COPY, STEP, MADE, GIL = range(9, 17)

BUCKETS = 172  # quarters of octaves of nanoseconds, as in ``accel.profiling.measured``
COUNT, NS, CPU_NS, CPU_OF_NS, HISTOGRAM = 0, 1, 2, 3, 4
"""What a stage has: how often, how long, and of so much of that time the CPU time; how often in each bucket."""
WIDTH = HISTOGRAM + BUCKETS

now = time.perf_counter_ns
cpu_ns = time.thread_time_ns
process_cpu_ns = time.process_time_ns
"""CPU time of a thread and of the process; looked up when it is needed."""

sampling_cpu = True
"""Whether stages that begin now measure CPU time, which costs more than the rest."""
events: list[tuple[int, int, int, int]] | None = None
"""Stages, threads, beginnings and durations that are not written yet; None where no trace is wanted."""
ranges: Callable[[str], Any] | None = None
"""Makes a context that shows a stage in torch's profiler, while that is on."""

_local = threading.local()
_threads: list[Clock] = []
_ended = np.zeros((len(STAGES), WIDTH), np.int64)  # of threads that are no more
_MOST_THREADS = 64
_lock = fork.Lock()


class Clock:
    """What one thread counts.

    Attributes:
        done: stages that have ended since they were last added up: their nanoseconds, and below these the stage.
        inside, cpu_inside: nanoseconds spent in stages inside the one that runs.
        whole: whether what runs is timed as a whole: a pipeline of transforms, and not each of them.
        stepping, stepping_cpu, copied: when its step with a batch began, in all clocks; ``stepping`` 0: it has none.
    """

    __slots__ = ("copied", "cpu_inside", "done", "inside", "native_id", "stepping", "stepping_cpu", "sums", "whole")

    def __init__(self) -> None:
        self.sums = np.zeros((len(STAGES), WIDTH), np.int64)
        self.done: list[int] = []
        self.inside = self.cpu_inside = self.stepping = self.stepping_cpu = self.copied = 0
        self.whole = False
        self.native_id = threading.get_native_id()

    def add(self, stage: int, ns: int, cpu: int | None = None) -> None:
        """Count a stage that took so long."""
        self.done.append(ns << _SHIFT | stage)
        if cpu is not None:
            self.add_cpu(stage, ns, cpu)

    def add_cpu(self, stage: int, ns: int, cpu: int) -> None:
        self.sums[stage, CPU_NS] += cpu
        self.sums[stage, CPU_OF_NS] += ns

    def ns(self, stage: int) -> int:
        """Nanoseconds spent in a stage, in all."""
        self.add_up()
        return int(self.sums[stage, NS])

    def add_up(self) -> npt.NDArray[np.int64]:
        """The sums of all that is done; by one thread at a time, be it this one or not."""
        with _adding:
            count = len(self.done)  # there may be more any moment
            done = np.array(self.done[:count], np.int64)
            del self.done[:count]
            if count:
                stages, ns = done & _MASK, done >> _SHIFT
                buckets = np.minimum((4 * np.log2(np.maximum(ns, 1)) + 1e-9).astype(np.int64), BUCKETS - 1)
                flat = self.sums.reshape(-1)
                np.add.at(flat, stages * WIDTH + NS, ns)
                np.add.at(flat, stages * WIDTH + COUNT, 1)
                np.add.at(flat, stages * WIDTH + HISTOGRAM + buckets, 1)
        return self.sums


_SHIFT, _MASK = 5, 31
_adding = fork.Lock()


def clock() -> Clock:
    """This thread's."""
    try:
        found: Clock = _local.clock
    except AttributeError:
        found = _local.clock = Clock()
        with _lock:
            _threads.append(found)
    return found


def timed(stage: int, original: Callable[..., Any]) -> Callable[..., Any]:
    """The function, as a stage."""
    shows, name = stage not in (WAIT, COPY), f"accel::{STAGES[stage]}"

    @wraps(original)
    def stage_of(*args: Any, **kwargs: Any) -> Any:
        try:
            own = _local.clock
        except AttributeError:
            own = clock()
        outside, own.inside = own.inside, 0
        shown = None
        if ranges is not None:
            shown = ranges(name)
            shown.__enter__()
        samples = sampling_cpu
        if samples:
            cpu_outside, own.cpu_inside = own.cpu_inside, 0
            cpu_begun = cpu_ns()
        begun = now()
        try:
            return original(*args, **kwargs)
        finally:
            took = now() - begun
            ns = took - own.inside
            own.done.append(ns << 5 | stage)
            own.inside = outside + took
            if samples:
                cpu = cpu_ns() - cpu_begun
                own.add_cpu(stage, ns, cpu - own.cpu_inside)
                own.cpu_inside = cpu_outside + cpu
            if shown is not None:
                shown.__exit__(None, None, None)
            if events is not None and shows:
                events.append((stage, own.native_id, begun, took))

    return stage_of


def shown(stage: int, original: Callable[..., Any]) -> Callable[..., Any]:
    """The function, as a stage that is shown by torch's profiler and counted nowhere."""
    name = f"accel::{STAGES[stage]}"

    @wraps(original)
    def range_of(*args: Any, **kwargs: Any) -> Any:
        if ranges is None:
            return original(*args, **kwargs)
        with ranges(name):
            return original(*args, **kwargs)

    return range_of


def forget(*, events_wanted: bool = False) -> None:
    """Begin anew in this process."""
    global _local, _ended, events, sampling_cpu
    _local, _ended = threading.local(), np.zeros((len(STAGES), WIDTH), np.int64)
    _threads.clear()
    events, sampling_cpu = [] if events_wanted else None, True


def sums() -> tuple[npt.NDArray[np.int64], int]:
    """What the threads of this process have counted, and how many of them have decoded or transformed."""
    global _ended
    each = [clock.add_up() for clock in tuple(_threads)]
    total = sum(each, _ended) if len(each) > 1 else each[0] + _ended if each else _ended.copy()
    working = sum(bool(sums[DECODE : KERNELS + 1, COUNT].any()) for sums in each)
    if len(_threads) > _MOST_THREADS:
        alive = {thread.native_id for thread in threading.enumerate()}
        for clock in [clock for clock in _threads if clock.native_id not in alive]:
            _threads.remove(clock)
            _ended = _ended + clock.add_up()
    return total, working


def _in_child() -> None:
    global ranges
    ranges = None  # the profiler is the parent's
    forget(events_wanted=events is not None)


fork.register(in_child=_in_child)
