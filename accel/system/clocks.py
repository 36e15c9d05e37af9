"""Clocks: how long each stage of the input pipeline takes in this process, as plain data.

A *stage* is a function that ``timed`` has been put around. Its time is its own: that of stages inside it is taken off.
Each thread counts for itself. What a process has counted is written where others see it by ``accel.system.measuring``,
which also says when clocks run; only then they are put around the functions (``accel.profiling.stages``).

What is done for each image, in a ``section``, is counted in some batches only. All that sections take in the others
is counted as ``fetch``, and divided among the stages in proportion to what they took where they were counted.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from accel.system import fork

resource: Any
try:
    import resource
except ImportError:  # not every system has it
    resource = None

STAGES: tuple[str, ...] = ("idle", "read", "record", "decode", "transform", "kernels", "user", "collate", "send")
STAGES += ("wait", "receive", "unpack", "plan", "launch", "copy", "step", "made", "gil", "fetch")
"""The stages, and what is counted like one: a worker's batches, how late a thread came to have the GIL, and sections:
what they took as a whole."""

IDLE, READ, RECORD, DECODE, TRANSFORM, KERNELS, USER, COLLATE, SEND = range(9)
WAIT, RECEIVE, UNPACK, PLAN, LAUNCH, COPY, STEP, MADE, GIL, FETCH = range(9, 19)

BUCKETS = 172  # quarters of octaves of nanoseconds, as in ``accel.profiling.measured``
COUNT, NS, CPU_NS, CPU_OF_NS, HISTOGRAM = 0, 1, 2, 3, 4
"""What a stage has: how often, how long, and of so much of that time the CPU time; how often in each bucket."""
WIDTH = HISTOGRAM + BUCKETS

now = time.perf_counter_ns
cpu_ns = time.thread_time_ns
process_cpu_ns = time.process_time_ns
"""CPU time of a thread and of the process; looked up when it is needed."""


def system_ns() -> int:
    """CPU time that the system took for this process: reading files, giving it memory."""
    if resource is None:
        return int(os.times().system * 1e9)  # in steps of 10 ms
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_stime * 1e9)


telling = True
"""Whether stages within sections are told apart now."""
mark = 0
"""Set in what is counted in them: ``TOLD``, where it stands for what others do."""
sampling_cpu = True
"""Whether stages that begin now measure CPU time, which costs more than the rest."""
events: list[tuple[int, int, int, int]] | None = None
"""Stages, threads, beginnings and durations that are not written yet; None where no trace is wanted."""
originals: dict[Any, Any] = {}
"""Of methods of transforms that have a clock, what each is without; whoever compares them means that."""
ranges: Callable[[str], Any] | None = None
"""Makes a context that shows a stage in torch's profiler, while that is on."""

local = threading.local()
"""Has the clock of this thread, as ``clock``, once it was asked for."""
threads: list[Clock] = []
"""The clocks of this process."""
forgets: list[Callable[[], object]] = []
"""Called when all that was counted is forgotten."""
_lock = fork.Lock()

TOLD = 32
"""Set in what is counted in sections whose stages are told apart."""


class Clock:
    """What one thread counts.

    Attributes:
        done: stages that have ended since they were last gathered: their nanoseconds, ``TOLD``, and the stage.
        cpu: of some of them the stage, the nanoseconds and the CPU time.
        inside, cpu_inside: nanoseconds spent in stages inside the one that runs.
        section: whether it is in one.
        whole: whether what runs is timed as a whole: a pipeline of transforms, and not each of them.
        stepping, stepping_cpu, copied: when its step with a batch began, in all clocks; ``stepping`` 0: it has none,
            ``stepping_cpu`` (of the thread, and of the process) None: its CPU time is not measured.
        copies: nanoseconds of copying, in all.
        batch: the one that it was given last.
        iterator, left, plain: what gives it batches of which next to nothing is noted now; how many more of them there
            are; what was noted (``accel.profiling.loading``).
        worked: whether it has decoded or transformed.
    """

    __slots__ = (
        "batch", "copied", "copies", "cpu", "cpu_inside", "done", "inside", "iterator", "left", "native_id", "plain",
        "section", "stepping", "stepping_cpu", "whole", "worked",
    )  # fmt: skip

    def __init__(self) -> None:
        self.done: list[int] = []
        self.cpu: list[tuple[int, int, int]] = []
        self.plain: list[tuple[int, ...]] = []
        self.inside = self.cpu_inside = self.stepping = self.copied = self.copies = self.left = 0
        self.batch: Any = None
        self.iterator: Callable[[], Any] = _none
        self.stepping_cpu: tuple[int, int] | None = None
        self.section = self.whole = self.worked = False
        self.native_id = threading.get_native_id()

    def add(self, stage: int, ns: int, cpu: int | None = None) -> None:
        """Count a stage that took so long."""
        self.done.append(ns << 6 | stage)
        if cpu is not None:
            self.cpu.append((stage, ns, cpu))

    def add_within(self, stage: int, begun: list[int], ended: list[int], whole: int, cpu: int | None) -> None:
        """Count a stage that came several times within what runs; of CPU time its part of what the whole had."""
        marked, all_of_it = self.marked(), 0
        for since, until in zip(begun, ended, strict=True):
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
        """What is set in what this thread counts of images; one of a pool has no section, one that steps is in none."""
        return mark if self.section or not self.stepping else 0


def _none() -> None:
    return None


def clock() -> Clock:
    """This thread's."""
    try:
        found: Clock = local.clock
    except AttributeError:
        found = local.clock = Clock()
        with _lock:
            threads.append(found)
    return found


def timed(stage: int, original: Callable[..., Any], *, of_image: bool = False) -> Callable[..., Any]:
    """The function, as a stage; ``of_image``: of a section, where its stages are told apart."""
    shows, copies, name = stage not in (WAIT, COPY), stage == COPY, f"accel::{STAGES[stage]}"

    @wraps(original)
    def stage_of(*args: Any, **kwargs: Any) -> Any:
        if of_image and not telling:
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
            cpu_begun = cpu_ns()
        begun = now()
        try:
            return original(*args, **kwargs)
        finally:
            took = now() - begun
            ns = took - own.inside
            own.done.append(ns << 6 | (own.marked() if of_image else 0) | stage)
            own.inside = outside + took
            if copies:
                own.copies += ns
            if samples:
                cpu = cpu_ns() - cpu_begun
                own.cpu.append((stage, ns, cpu - own.cpu_inside))
                own.cpu_inside = cpu_outside + cpu
            if shown is not None:
                shown.__exit__(None, None, None)
            if events is not None and shows:
                events.append((stage, own.native_id, begun, took))

    return stage_of


def section(stage: int, original: Callable[..., Any]) -> Callable[..., Any]:
    """The function, as a stage that is a section, unless it is part of another."""
    told, whole = timed(stage, original, of_image=True), timed(FETCH, original)

    @wraps(original)
    def part(*args: Any, **kwargs: Any) -> Any:
        own = clock()
        if own.section:
            return (told if telling else original)(*args, **kwargs)
        own.section, marked, begun = True, telling and mark, now()
        try:
            return (told if telling else whole)(*args, **kwargs)
        finally:
            own.section = False
            if marked:
                own.done.append((now() - begun) << 6 | TOLD | FETCH)

    return part


@contextmanager
def unmeasured() -> Iterator[None]:
    """What this thread does inside is in no stage, nor in the time of the one that runs: it is done but once."""
    own = clock()
    whole, outside, begun = own.whole, own.inside, now()
    own.whole = True
    try:
        yield
    finally:
        own.whole, own.inside = whole, outside + now() - begun


def put_aside(place: dict[str, Any], name: str, original: Callable[..., Any]) -> None:
    """Have the original in the place of what has a clock while no stages are told apart."""
    _aside.append((place, name, place[name], original))


def put_back() -> None:
    """Have all that has a clock in its place, from now on."""
    tell(True)
    _aside.clear()


def tell(apart: bool) -> None:
    """Tell the stages of sections that begin now apart, or not."""
    global telling
    if apart != telling:
        telling = apart
        for place, name, clocked, original in _aside:
            there, next_there = (original, clocked) if apart else (clocked, original)
            if place.get(name) is there:  # and not somebody else's
                place[name] = next_there


_aside: list[tuple[dict[str, Any], str, Callable[..., Any], Callable[..., Any]]] = []


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
    global local, events, sampling_cpu, telling, mark
    telling, mark = False, 0  # where another thread was about to change it
    tell(True)
    local = threading.local()
    threads.clear()
    for each in forgets:
        each()
    events, sampling_cpu = [] if events_wanted else None, True


def _in_child() -> None:
    global ranges
    ranges = None  # the profiler is the parent's
    forget(events_wanted=events is not None)


fork.register(in_child=_in_child)
