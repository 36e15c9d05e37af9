"""Clocks: how long each stage of the input pipeline takes in this process, as plain data.

A *stage* is a function that ``timed`` has been put around. Its time is its own: that of stages inside it is taken off.
Each thread counts for itself. What a process has counted is written where others see it by ``accel.system.measuring``,
which also says when clocks run; only then they are put around the functions (``accel.profiling.stages``).

What a fetch does for each image is counted in some batches only. All that a fetch takes in the others is counted as
``fetch``, and divided among the stages in proportion to what they took where they were counted (``divided``).
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
STAGES += ("wait", "unpack", "plan", "launch", "copy", "step", "made", "gil", "fetch")
"""The stages, and what is counted like one: a worker's batches, how late a thread came to have the GIL, and fetches
whose stages were not told apart."""

IDLE, READ, RECORD, DECODE, TRANSFORM, KERNELS, USER, COLLATE, SEND = range(9)
WAIT, UNPACK, PLAN, LAUNCH, COPY, STEP, MADE, GIL, FETCH = range(9, 18)

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
_sums = np.zeros((2, len(STAGES), WIDTH), np.int64)
"""What threads have counted: in all, and of that in fetches whose stages were told apart."""
_unadded: list[int] = []
_worked = 0  # threads that have decoded or transformed, and are no more
_MOST_THREADS = 64
_lock = fork.Lock()

TOLD = 32
"""Set in what a thread counts in a fetch whose stages are told apart."""
_SHIFT, _STAGE = 6, 31


class Clock:
    """What one thread counts.

    Attributes:
        done: stages that have ended since they were last gathered: their nanoseconds, ``TOLD``, and the stage.
        cpu: of some of them the stage, the nanoseconds and the CPU time.
        inside, cpu_inside: nanoseconds spent in stages inside the one that runs.
        within: ``TOLD`` within a fetch whose stages are told apart, None within another, else 0.
        whole: whether what runs is timed as a whole: a pipeline of transforms, and not each of them.
        stepping, stepping_cpu, copied: when its step with a batch began, in all clocks; ``stepping`` 0: it has none.
        copies: nanoseconds of copying, in all.
        worked: whether it has decoded or transformed.
    """

    __slots__ = (
        "copied", "copies", "cpu", "cpu_inside", "done", "inside", "native_id", "stepping", "stepping_cpu", "whole",
        "within", "worked",
    )  # fmt: skip

    def __init__(self) -> None:
        self.done: list[int] = []
        self.cpu: list[tuple[int, int, int]] = []
        self.inside = self.cpu_inside = self.stepping = self.stepping_cpu = self.copied = self.copies = 0
        self.within: int | None = 0
        self.whole = self.worked = False
        self.native_id = threading.get_native_id()

    def add(self, stage: int, ns: int, cpu: int | None = None) -> None:
        """Count a stage that took so long."""
        self.done.append(ns << 6 | stage)
        if cpu is not None:
            self.cpu.append((stage, ns, cpu))


def clock() -> Clock:
    """This thread's."""
    try:
        found: Clock = _local.clock
    except AttributeError:
        found = _local.clock = Clock()
        with _lock:
            _threads.append(found)
    return found


def timed(stage: int, original: Callable[..., Any], *, of_image: bool = False) -> Callable[..., Any]:
    """The function, as a stage; ``of_image``: within a fetch, where its stages are told apart."""
    passes = None if of_image else _NEVER
    shows, copies, name = stage not in (WAIT, COPY), stage == COPY, f"accel::{STAGES[stage]}"

    @wraps(original)
    def stage_of(*args: Any, **kwargs: Any) -> Any:
        try:
            own = _local.clock
        except AttributeError:
            own = clock()
        if own.within is passes:
            return original(*args, **kwargs)
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
            own.done.append(ns << 6 | (own.within or 0) | stage)
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


_NEVER = object()


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
    global _local, _worked, events, sampling_cpu
    _local, _worked = threading.local(), 0
    _sums[:] = 0
    _threads.clear()
    _unadded.clear()
    events, sampling_cpu = [] if events_wanted else None, True


def gathered() -> list[int]:
    """What the threads of this process have counted and nobody has added up."""
    global _worked
    with _gathering:
        for each in _threads:
            count = len(each.done)  # there may be more any moment
            if count:
                done = each.done[:count]
                del each.done[:count]
                each.worked = each.worked or any(DECODE <= entry & _STAGE <= KERNELS for entry in done)
                _unadded.extend(done)
        if len(_threads) > _MOST_THREADS:
            alive = {thread.native_id for thread in threading.enumerate()}
            for ended in [each for each in _threads if each.native_id not in alive and not each.done]:
                _threads.remove(ended)
                _worked += ended.worked
                _add_cpu(ended)
    return _unadded


_gathering = fork.Lock()


def sums() -> npt.NDArray[np.int64]:
    """What the threads of this process have counted: in all, and of that in fetches whose stages were told apart."""
    unadded = gathered()
    with _gathering:
        count = len(unadded)
        add_up(_sums, np.array(unadded[:count], np.int64))
        del unadded[:count]
        for each in _threads:
            _add_cpu(each)
    return _sums


def _add_cpu(own: Clock) -> None:
    for _ in range(len(own.cpu)):
        stage, ns, cpu = own.cpu.pop()
        _sums[0, stage, CPU_NS] += cpu
        _sums[0, stage, CPU_OF_NS] += ns


def working() -> int:
    """How many threads have decoded or transformed."""
    return _worked + sum(each.worked for each in _threads)


def add_up(sums: npt.NDArray[np.int64], done: npt.NDArray[np.int64]) -> None:
    """Add stages that have ended (``Clock.done``) to what ``sums`` gives."""
    if not len(done):
        return
    done = np.concatenate([done, done[done & TOLD != 0] | _SECOND])
    ns = (done & ~_SECOND) >> _SHIFT
    base = ((done & _STAGE) + len(STAGES) * (done & _SECOND != 0)) * WIDTH
    buckets = np.minimum((4 * np.log2(np.maximum(ns, 1)) + 1e-9).astype(np.int64), BUCKETS - 1)
    ones = np.ones_like(ns)
    np.add.at(
        sums.reshape(-1),
        np.concatenate([base + NS, base + COUNT, base + HISTOGRAM + buckets]),
        np.concatenate([ns, ones, ones]),
    )


_SECOND = 1 << 62


def divided(sums: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The stages [stages, WIDTH] of what ``sums`` gives, with fetches divided among them."""
    whole: npt.NDArray[np.int64] = sums[0].copy()
    told = sums[1]
    lump = whole[FETCH].copy()
    whole[FETCH] = 0
    if lump[NS]:
        told_ns = int(told[:, NS].sum())
        if not told_ns:
            whole[USER] += lump
            return whole
        times = int(lump[NS]) / told_ns
        more = np.rint(told[:, HISTOGRAM:] * times).astype(np.int64)
        whole[:, HISTOGRAM:] += more
        whole[:, COUNT] += more.sum(1)
        whole[:, NS] += np.rint(told[:, NS] * times).astype(np.int64)
    return whole


def _in_child() -> None:
    global ranges
    ranges = None  # the profiler is the parent's
    forget(events_wanted=events is not None)


fork.register(in_child=_in_child)
