"""Clocks: how long each stage of the input pipeline takes in this process, as plain data.

A *stage* is a function that ``timed`` wraps. Its time is its own: that of stages inside it is subtracted. Each thread
counts for itself. ``measuring`` writes a process's counts where others see them, and says when clocks run; only then
are functions wrapped (``accel.profiling.instrumentation``).

Stages of each image, inside a ``section``, are timed one by one in some batches only, which are *detailed*. In the
others a section's whole time is counted as ``fetch``, and divided among the stages in proportion to what they took in
detailed ones (``divided``).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
STAGES += ("wait", "receive", "unpack", "plan", "launch", "copy", "step", "made", "gil", "fetch")
"""The stages, and three things counted like one: a worker's batches (``made``), how long a thread waited for the GIL,
and sections as a whole (``fetch``)."""

IDLE, READ, RECORD, DECODE, TRANSFORM, KERNELS, USER, COLLATE, SEND = range(9)
WAIT, RECEIVE, UNPACK, PLAN, LAUNCH, COPY, STEP, MADE, GIL, FETCH = range(9, 19)

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


detailed = True
"""Whether stages within sections are timed one by one now."""
mark = 0
"""The bit set in entries of stages within sections: ``DETAILED`` if this section is a sample for the others, or 0."""
sampling_cpu = True
"""Whether stages that begin now measure CPU time, which costs more than the rest."""
events: list[tuple[int, int, int, int]] | None = None
"""(stage, thread, beginning, duration) of stages that are not written yet; None if no trace is wanted."""
originals: dict[Any, Any] = {}
"""The original of each method of a transform that has a clock, for those who compare methods."""
ranges: Callable[[str], Any] | None = None
"""Makes a context that shows a stage in torch's profiler; None while that is off."""

local = threading.local()
"""Holds this thread's clock as ``clock``, once ``clock()`` was called."""
threads: list[Clock] = []
"""The clocks of this process."""
_lock = fork.Lock()

DETAILED = 32
"""Bit set in entries of sections whose stages are timed one by one."""


class Clock:
    """The counts of one thread.

    Attributes:
        done: an entry for each stage that ended since the last ``gather``: nanoseconds << 6, ``DETAILED``, the stage.
        cpu: (stage, nanoseconds, CPU time) of some of them.
        inside, cpu_inside: nanoseconds spent in stages inside the one that runs.
        section: whether the thread is in a section.
        whole: whether the running code is timed as a whole: a pipeline of transforms, and not each of them.
        stepping, stepping_cpu, copied: the time, the CPU times (of the thread, and of the process) and ``copies`` when
            the step with the current batch began; ``stepping`` 0: no step, ``stepping_cpu`` None: no CPU time wanted.
        copies: nanoseconds of copying, in all.
        batch: the batch that it got last.
        iterator, left, plain: the source of batches of which next to nothing is noted now; how many of those are left;
            what was noted (``accel.profiling.loading``).
        worked: whether it has decoded or transformed.
    """

    def __init__(self) -> None:
        self.done: list[int] = []
        self.cpu: list[tuple[int, int, int]] = []
        self.plain: list[tuple[int, ...]] = []
        self.inside = self.cpu_inside = self.stepping = self.copied = self.copies = self.left = 0
        self.batch: Any = None
        self.iterator: Callable[[], Any] = lambda: None
        self.stepping_cpu: tuple[int, int] | None = None
        self.section = self.whole = self.worked = False
        self.native_id = threading.get_native_id()

    def add(self, stage: int, ns: int, cpu: int | None = None) -> None:
        """Count a stage that took ``ns``, with its CPU time if that was measured; both in nanoseconds."""
        self.done.append(ns << 6 | stage)
        if cpu is not None:
            self.cpu.append((stage, ns, cpu))

    def add_within(self, stage: int, start: list[int], ended: list[int], whole: int, cpu: int | None) -> None:
        """Count a stage that ran several times inside the running one, with a proportional part of its CPU time.

        Args:
            start, ended: when each began and ended. whole, cpu: time and CPU time of the running stage.
        """
        marked, all_of_it = self.marked(), 0
        for since, until in zip(start, ended, strict=True):
            ns = until - since
            all_of_it += ns
            self.done.append(ns << 6 | marked | stage)
            if events is not None:
                events.append((stage, self.native_id, since, ns))
        self.inside += all_of_it
        if cpu is not None:
            own = cpu * all_of_it // max(whole, 1)
            self.cpu.append((stage, all_of_it, own))
            self.cpu_inside += own

    def marked(self) -> int:
        """The bit to set in entries of image stages: ``mark``, but 0 in a step outside sections (pools have none)."""
        return mark if self.section or not self.stepping else 0


def clock() -> Clock:
    """This thread's clock."""
    try:
        found: Clock = local.clock
    except AttributeError:
        found = local.clock = Clock()
        with _lock:
            threads.append(found)
    return found


def timed(stage: int, original: Callable[..., Any], *, of_image: bool = False) -> Callable[..., Any]:
    """Wrap a function as a stage; ``of_image``: a stage within sections, counted only in detailed ones."""
    shows, copies, name = stage not in (WAIT, COPY), stage == COPY, f"accel::{STAGES[stage]}"

    @wraps(original)
    def stage_of(*args: Any, **kwargs: Any) -> Any:
        if of_image and not detailed:
            return original(*args, **kwargs)
        try:
            own = local.clock
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
            cpu_start = cpu_ns()
        start = now()
        try:
            return original(*args, **kwargs)
        finally:
            took = now() - start
            ns = took - own.inside
            own.done.append(ns << 6 | (own.marked() if of_image else 0) | stage)
            own.inside = outside + took
            if copies:
                own.copies += ns
            if samples:
                cpu = cpu_ns() - cpu_start
                own.cpu.append((stage, ns, cpu - own.cpu_inside))
                own.cpu_inside = cpu_outside + cpu
            if shown is not None:
                shown.__exit__(None, None, None)
            if events is not None and shows:
                events.append((stage, own.native_id, start, took))

    return stage_of


def section(stage: int, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function as a stage and a section; inside another section it is just a stage of that."""
    by_stage, whole = timed(stage, original, of_image=True), timed(FETCH, original)

    @wraps(original)
    def part(*args: Any, **kwargs: Any) -> Any:
        own = clock()
        if own.section:
            return (by_stage if detailed else original)(*args, **kwargs)
        own.section, marked, start = True, detailed and mark, now()
        try:
            return (by_stage if detailed else whole)(*args, **kwargs)
        finally:
            own.section = False
            if marked:
                own.done.append((now() - start) << 6 | DETAILED | FETCH)

    return part


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
        if ranges is None:
            return original(*args, **kwargs)
        with ranges(name):
            return original(*args, **kwargs)

    return range_of


# -- sums of all threads ------------------------------------------------------------------------------------

_totals = np.zeros((2, len(STAGES), WIDTH), np.int64)
"""Counts of all threads: in all, and the part from detailed sections."""
_ended_worked = 0  # threads that have decoded or transformed, and have ended
_MOST_THREADS = 64
_SHIFT, _STAGE, _SECOND = 6, 31, 1 << 62
_adding = fork.Lock()


def total() -> npt.NDArray[np.int64]:
    """Add up what the threads of this process have counted, int64 [2, stages, WIDTH]: in all, and the part from
    detailed sections."""
    global _ended_worked
    with _adding:
        for each in threads:
            count = len(each.done)  # its thread may append more at any moment
            done = np.array(each.done[:count], np.int64)
            del each.done[:count]
            add_up(_totals, done)
            each.worked = each.worked or bool(np.isin(done & _STAGE, (DECODE, TRANSFORM, KERNELS)).any())
            for _ in range(len(each.cpu)):
                stage, ns, cpu = each.cpu.pop()
                _totals[0, stage, CPU_NS] += cpu
                _totals[0, stage, CPU_OF_NS] += ns
        if len(threads) > _MOST_THREADS:
            alive = {thread.native_id for thread in threading.enumerate()}
            for ended in [each for each in threads if each.native_id not in alive and not each.done and not each.plain]:
                threads.remove(ended)
                _ended_worked += ended.worked
    return _totals


def working() -> int:
    """The number of threads that have decoded or transformed."""
    return _ended_worked + sum(each.worked for each in threads)


def add_up(sums: npt.NDArray[np.int64], done: npt.NDArray[np.int64]) -> None:
    """Add entries of stages that have ended (``Clock.done``), int64 [entries], to sums as of ``total()``."""
    done = np.concatenate([done, done[done & DETAILED != 0] | _SECOND])
    ns = (done & ~_SECOND) >> _SHIFT
    base = ((done & _STAGE) + len(STAGES) * (done & _SECOND != 0)) * WIDTH
    buckets = np.minimum((4 * np.log2(np.maximum(ns, 1)) + 1e-9).astype(np.int64), BUCKETS - 1)
    for places, values in ((base + NS, ns), (base + COUNT, 1), (base + HISTOGRAM + buckets, 1)):
        np.add.at(sums.reshape(-1), places, values)


def divided(sums: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The stages, int64 [stages, WIDTH], of sums as of ``total()``, with the time of sections that were not detailed
    divided among them in proportion to the others; so is the number of calls."""
    whole: npt.NDArray[np.int64] = sums[0].copy()
    sample = sums[1].copy()
    lump = whole[FETCH] - sample[FETCH]
    sample_ns, sample_count = int(sample[FETCH, NS]), int(sample[FETCH, COUNT])
    whole[FETCH] = sample[FETCH] = 0
    if lump[COUNT] > 0 and not sample_ns:
        whole[USER] += lump
    elif lump[COUNT] > 0:
        often = int(lump[COUNT]) / sample_count
        more = np.diff(np.rint(sample[:, HISTOGRAM:].cumsum(1) * often), prepend=0).astype(np.int64)  # in all as many
        whole[:, HISTOGRAM:] += more
        whole[:, COUNT] += more.sum(1)
        whole[:, NS] += np.rint(sample[:, NS] * (int(lump[NS]) / sample_ns)).astype(np.int64)
    return whole


def forget(*, events_wanted: bool = False) -> None:
    """Reset all counts of this process; ``events_wanted``: whether to collect a trace from now on."""
    global local, events, sampling_cpu, detailed, mark, _ended_worked
    local = threading.local()
    threads.clear()
    _totals[:], _ended_worked = 0, 0
    events, sampling_cpu, detailed, mark = [] if events_wanted else None, True, True, 0


def _in_child() -> None:
    global ranges
    ranges = None  # the profiler is the parent's
    forget(events_wanted=events is not None)


fork.register(in_child=_in_child)
