"""Clocks: how long each stage of the input pipeline takes in this process, as plain data.

A *stage* is a function that ``timed`` wraps. Its time is its own: that of stages inside it is subtracted. Each thread
counts for itself. ``measuring`` writes a process's counts where others see them, and says when clocks run; only then
are functions wrapped (``accel.profiling.instrumentation``).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from typing import Any

import numpy as np
import numpy.typing as npt

from accel.system import fork

resource: Any
try:
    import resource
except ImportError:  # not every system has it
    resource = None

STAGES: tuple[str, ...] = ("idle", "read", "record", "decode", "transform", "kernels", "user", "collate", "send")
STAGES += ("wait", "receive", "unpack", "plan", "launch", "copy", "step", "made", "gil")
"""The stages, and two things counted like one: a worker's batches (``made``), how long a thread waited for the GIL."""

IDLE, READ, RECORD, DECODE, TRANSFORM, KERNELS, USER, COLLATE, SEND = range(9)
WAIT, RECEIVE, UNPACK, PLAN, LAUNCH, COPY, STEP, MADE, GIL = range(9, 18)

BUCKETS = 172  # quarters of octaves up to 2**43 ns, 2.4 hours; longer times count in the last
COUNT, NS, CPU_NS, CPU_OF_NS, HISTOGRAM = 0, 1, 2, 3, 4
"""Columns of a stage: calls, nanoseconds, CPU time, the nanoseconds that this CPU time is of, calls by bucket."""
WIDTH = HISTOGRAM + BUCKETS

now = time.perf_counter_ns
cpu_ns = time.thread_time_ns
process_cpu_ns = time.process_time_ns
"""CPU time of the thread and of the process, in nanoseconds; callers look these names up at each use."""


def system_ns() -> int:
    """CPU time in nanoseconds that this process spent in the kernel: reading files, getting memory."""
    if resource is None:
        return int(os.times().system * 1e9)  # in steps of 10 ms
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_stime * 1e9)


sampling_cpu = True
"""Whether stages that begin now measure CPU time, which costs more than the rest."""
events: list[tuple[int, int, int, int]] | None = None
"""(stage, thread, beginning, duration) of stages that are not written yet; None if no trace is wanted."""
originals: dict[Any, Any] = {}
"""The original of each method of a transform that has a clock, for those who compare methods."""
ranges: Callable[[str], Any] | None = None
"""Makes a context that shows a stage in torch's profiler; None while that is off."""
_HIDDEN = nullcontext()

local = threading.local()
"""Holds this thread's clock as ``clock``, once ``clock()`` was called."""
threads: list[Clock] = []
"""The clocks of this process."""
_lock = fork.Lock()


class Clock:
    """The counts of one thread.

    Attributes:
        done: (stage, nanoseconds, CPU time or -1) for each stage that has ended and is not added up yet.
        stage: the one that runs. inside, cpu_inside: nanoseconds spent in stages inside it.
        fetches: whether the thread is making a batch.
        whole: whether the running code is timed as a whole: a pipeline of transforms, and not each of them.
        stepping, stepping_cpu, copied: the time, the CPU times (of the thread, and of the process) and ``copies`` when
            the step with the current batch began; ``stepping`` 0: no step, ``stepping_cpu`` None: no CPU time wanted.
        copies: nanoseconds of copying, in all.
        batch: the batch that it got last (``accel.profiling.loading``).
    """

    def __init__(self) -> None:
        self.done: list[tuple[int, int, int]] = []
        self.inside = self.cpu_inside = self.stepping = self.copied = self.copies = 0
        self.batch: Any = None
        self.stage: int | None = None
        self.stepping_cpu: tuple[int, int] | None = None
        self.fetches = self.whole = False
        self.native_id = threading.get_native_id()

    def add(self, stage: int, ns: int, cpu: int | None = None) -> None:
        """Count a stage that took ``ns``, with its CPU time if that was measured; both in nanoseconds."""
        self.done.append((stage, ns, -1 if cpu is None else max(cpu, 0)))

    def add_within(self, stage: int, times: npt.NDArray[np.int64], whole: int, cpu: int | None) -> None:
        """Count a stage that ran several times inside the running one, with a proportional part of its CPU time.

        Args:
            times: int64 [n, 2]: when each began and ended. whole, cpu: time and CPU time of the running stage.
        """
        took = (times[:, 1] - times[:, 0]).tolist()
        spent = [-1 if cpu is None else cpu * ns // max(whole, 1) for ns in took]
        self.done += [(stage, ns, own) for ns, own in zip(took, spent, strict=True)]
        self.inside += sum(took)
        self.cpu_inside += 0 if cpu is None else sum(spent)
        if events is not None:
            events.extend((stage, self.native_id, int(at), ns) for at, ns in zip(times[:, 0], took, strict=True))


def clock() -> Clock:
    """This thread's clock."""
    try:
        found: Clock = local.clock
    except AttributeError:
        found = local.clock = Clock()
        with _lock:
            threads.append(found)
    return found


def timed(stage: int, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function as a stage."""
    name = f"accel::{STAGES[stage]}"

    @wraps(original)
    def stage_of(*args: Any, **kwargs: Any) -> Any:
        own, samples = clock(), sampling_cpu
        around, own.stage = own.stage, stage
        outside, own.inside = own.inside, 0
        cpu_outside, own.cpu_inside = own.cpu_inside, 0
        with _HIDDEN if ranges is None else ranges(name):
            cpu_start, start = cpu_ns() if samples else 0, now()
            try:
                return original(*args, **kwargs)
            finally:
                took = now() - start
                ns, cpu = took - own.inside, cpu_ns() - cpu_start if samples else 0
                own.add(stage, ns, cpu - own.cpu_inside if samples else None)
                own.stage, own.inside, own.cpu_inside = around, outside + took, cpu_outside + cpu
                if stage == COPY:
                    own.copies += ns
                elif events is not None:
                    events.append((stage, own.native_id, start, took))

    return stage_of


@contextmanager
def unmeasured() -> Iterator[None]:
    """Leave the block out of all stages, also out of the running one: for work that is done only once."""
    own = clock()
    whole, outside, start = own.whole, own.inside, now()
    own.whole = True
    try:
        yield
    finally:
        own.whole, own.inside = whole, outside + now() - start


def shown(stage: int, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function as a stage that torch's profiler shows, and that is not counted."""
    name = f"accel::{STAGES[stage]}"

    @wraps(original)
    def range_of(*args: Any, **kwargs: Any) -> Any:
        with _HIDDEN if ranges is None else ranges(name):
            return original(*args, **kwargs)

    return range_of


# -- sums of all threads ------------------------------------------------------------------------------------

_totals = np.zeros((len(STAGES), WIDTH), np.int64)
working: set[int] = set()
"""The native ids of threads that have decoded or transformed."""
_MOST_THREADS = 64
_adding = fork.Lock()


def total() -> npt.NDArray[np.int64]:
    """Add up what the threads of this process have counted, int64 [stages, WIDTH]."""
    with _adding:
        done: list[tuple[int, int, int]] = []
        for each in threads:
            count = len(each.done)  # its thread may append more at any moment
            own = each.done[:count]
            del each.done[:count]
            if any(entry[0] in (DECODE, TRANSFORM, KERNELS) for entry in own):
                working.add(each.native_id)
            done += own
        stages, ns, cpu = np.array(done, np.int64).reshape(-1, 3).T
        buckets = np.minimum((4 * np.log2(np.maximum(ns, 1)) + 1e-9).astype(np.int64), BUCKETS - 1)
        spent = (CPU_NS, np.maximum(cpu, 0)), (CPU_OF_NS, np.where(cpu < 0, 0, ns))
        for column, values in ((COUNT, 1), (NS, ns), *spent, (HISTOGRAM + buckets, 1)):
            np.add.at(_totals.reshape(-1), stages * WIDTH + column, values)
        if len(threads) > _MOST_THREADS:
            alive = {thread.native_id for thread in threading.enumerate()}
            for ended in [each for each in threads if each.native_id not in alive and not each.done]:
                threads.remove(ended)
    return _totals


def forget(*, events_wanted: bool = False) -> None:
    """Reset all counts of this process; ``events_wanted``: whether to collect a trace from now on."""
    global local, events, sampling_cpu
    local = threading.local()
    threads.clear()
    working.clear()
    _totals[:] = 0
    events, sampling_cpu = [] if events_wanted else None, True


def _in_child() -> None:
    global ranges
    ranges = None  # the profiler is the parent's
    forget(events_wanted=events is not None)


fork.register(in_child=_in_child)
