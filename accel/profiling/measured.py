"""The measurements of a training, passed from collecting to judging: plain data without torch.

None always means "not measured", and is never shown as 0. Names that end in ``_ns`` are nanoseconds of the monotonic
clock (``time.perf_counter_ns`` of one machine), those that end in ``seconds`` or ``_s`` are seconds.
"""

from __future__ import annotations

import math
import os
import pickle
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from accel.system.timing.clocks import BUCKETS

WORKER_STAGES = ("idle", "read", "record", "decode", "transform", "kernels", "user", "collate", "send")
"""Stages of a worker, or of the main process for a loader without workers, in the order of an image's way."""
MAIN_STAGES = ("wait", "receive", "unpack", "plan", "launch", "copy", "step")
"""Stages of the main process."""
STAGES = WORKER_STAGES + MAIN_STAGES


def bucket(ns: int) -> int:
    """The index of a time's bucket in a histogram: bucket i holds [2**(i/4), 2**((i+1)/4)) ns."""
    return min(int(4 * math.log2(ns) + 1e-9), BUCKETS - 1) if ns > 1 else 0


@dataclass
class Spent:
    """The number of times something was done, the time it took in all, and the histogram of the times."""

    count: int = 0
    ns: int = 0
    cpu_ns: int | None = None
    histogram: list[int] = field(default_factory=list)
    """Counts of the buckets from 0 to the highest in use; empty if not measured."""

    @property
    def mean(self) -> float:
        """Nanoseconds of one time; 0.0 if there are none."""
        return self.ns / self.count if self.count else 0.0

    def add(self, ns: int, cpu_ns: int | None = None) -> None:
        index = bucket(ns)
        self.histogram += [0] * (index + 1 - len(self.histogram))
        self.histogram[index] += 1
        self.count += 1
        self.ns += ns
        if cpu_ns is not None:
            self.cpu_ns = (self.cpu_ns or 0) + cpu_ns

    def percentile(self, percent: float) -> float | None:
        """Nanoseconds below which ``percent`` of the times lie, to half a bucket (9%); None if there are none."""
        remaining = sum(self.histogram) * percent / 100
        for index, count in enumerate(self.histogram):
            remaining -= count
            if count and remaining <= 0:
                return float(2 ** ((index + 0.5) / 4))
        return None


def total(spent: Iterable[Spent]) -> Spent:
    """The sum of several; its CPU time is None if that of one is."""
    spent = [each for each in spent if each.count]
    longest = max((len(each.histogram) for each in spent), default=0)
    rows = [each.histogram + [0] * (longest - len(each.histogram)) for each in spent]
    cpu = [each.cpu_ns for each in spent if each.cpu_ns is not None]
    return Spent(
        sum(each.count for each in spent),
        sum(each.ns for each in spent),
        sum(cpu) if spent and len(cpu) == len(spent) else None,
        [sum(column) for column in zip(*rows, strict=True)],
    )


@dataclass
class Process:
    """A process and its time by stage; the stages, except those on a pool's threads, add up to ``seconds``."""

    pid: int
    role: str  # "main" or "worker"
    rank: int | None = None
    loader: int | None = None
    worker: int | None = None
    seconds: float = 0.0  # under measurement
    cpu_s: float | None = None  # CPU time of all its threads meanwhile
    threads: int = 1  # of its pool that share the stages' work; 1 if the stages ran on the calling thread
    stages: dict[str, Spent] = field(default_factory=dict)
    images: int | None = None  # made by it (a worker), or given to it (the main process)
    made: Spent | None = None
    """The times to make a worker's batches, from having the indices on, without its first two."""
    delayed_s: float | None = None
    """Seconds that its threads waited for a core (Linux: run_delay); of a worker, after its first batches."""
    gil: Spent | None = None
    """The times that the sampler's thread waited for the GIL."""
    first: Spent | None = None
    """CPU time to the end of a worker's first two batches; ``count``: their number, over all successive workers."""
    before_cpu_s: float | None = None  # CPU time before it was measured, if it was started meanwhile: imports
    system: float | None = None  # the system's share of its CPU time, as for memory; over the time of ``delayed_s``


@dataclass
class BatchTimes:
    """A batch that the main process asked for. The first of an epoch is number 0, and left out of every mean."""

    loader: int
    epoch: int
    number: int
    images: int
    requested_ns: int
    wait_ns: int
    bytes: int | None = None
    copy_ns: int | None = None
    step_ns: int | None = None
    """Until the next one was asked for, without ``copy_ns``; None if none was, as an epoch began instead."""
    step_cpu_ns: int | None = None
    """The main thread's CPU time of the step; ``of_all``: that of all threads of its process."""
    step_cpu_of_all_ns: int | None = None
    dry: bool | None = None  # whether the GPU had nothing left to do when the batch came
    pid: int | None = None  # the main process that asked, in merged measurements
    cpu_ns: int | None = None  # CPU time of the main process until it asked


@dataclass
class Loader:
    number: int
    batch_size: int | None = None
    num_workers: int = 0
    prefetch_factor: int | None = None
    pin_memory: bool = False
    persistent: bool = False
    method: str = "none"
    """The way that workers are started: "none", "fork", "spawn" or "forkserver"."""
    dataset: str = ""
    length: int | None = None
    """Batches of an epoch."""
    startup_ns: list[int] = field(default_factory=list)
    """The time from ``iter()`` to the first batch, for each epoch."""
    ended_ns: list[int] = field(default_factory=list)
    """The time to end the workers, for each epoch that they do not outlive."""
    renewed: bool = False
    """Whether it stands for several DataLoaders, a new one for each epoch."""
    draws: bool | None = None
    """Whether making a sample draws random numbers in the worker, which another ``num_workers`` would change."""
    pid: int | None = None
    """The main process that it belongs to, in merged measurements."""


@dataclass
class Machine:
    cores: int = 1
    """Cores that this process may use, by affinity and cgroup quota; ``busy``: the share that any processes use."""
    cores_all: int = 1
    busy: float | None = None
    memory_free: int | None = None
    shm_free: int | None = None
    gpu: str | None = None
    world_size: int = 1
    """Ranks on this machine."""


@dataclass
class Sample:
    """A statement of the user's, and how often the sampler found a process in it."""

    file: str
    line: int
    function: str
    text: str
    process: int
    count: int
    loading: bool = True
    """Whether it was making a sample or a batch; False if it was in the training loop."""


@dataclass
class Trial:
    """A comparison: the same samples made by the backend in force and another, in turns, on one thread."""

    images: int
    seconds: float
    """Time for an image under the other backend, in a worker, without waiting for indices or for a core. ``base_``: the
    same under the one in force. ``took_s``: the time of the whole trial."""
    cpu_s: float
    base_seconds: float
    base_cpu_s: float
    took_s: float | None = None
    freed_s: float = 0.0
    """CPU time to free an image's memory, which the main process does; ``base_``: under the backend in force."""
    base_freed_s: float = 0.0
    system_s: float = 0.0
    base_system_s: float = 0.0  # the system's part of the CPU time of an image


@dataclass
class Measured:
    """All measurements."""

    backend: str = "torchvision"
    options: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    processes: list[Process] = field(default_factory=list)
    loaders: list[Loader] = field(default_factory=list)
    batches: list[BatchTimes] = field(default_factory=list)
    """The last 4,096 of a process; the histograms of the main process's stages have all."""
    machine: Machine = field(default_factory=Machine)
    samples: list[Sample] = field(default_factory=list)
    counters: dict[str, Any] = field(default_factory=dict)
    """The increase of ``accel.stats()``."""
    events: list[tuple[int, int, str, int, int]] = field(default_factory=list)
    """(pid, tid, name, start_ns, ns) for a trace; empty unless one is wanted."""
    trials: dict[str, Trial] = field(default_factory=dict)
    """The trials made, by the other backend's name."""
    failed: str | None = None
    """The error that a loader's ``next()`` ended with."""
    backends: list[str] = field(default_factory=list)
    """The backends that can run here."""

    def save(self, file: Path) -> None:
        """Replace a file by these measurements, for ``load``; a reader finds either the old or the new ones."""
        new = file.with_suffix(".new")
        new.write_bytes(pickle.dumps(self))
        os.replace(new, file)


def load(folder: Path) -> Measured | None:
    """The measurements that all processes of a run have saved in a folder, merged; None if there are none."""
    parts = [pickle.loads(file.read_bytes()) for file in sorted(folder.glob("*.pickle"))]
    return merged(parts) if parts else None


def merged(parts: Iterable[Measured]) -> Measured:
    """Merge the measurements of several ranks or processes of one machine; loaders are renumbered."""
    parts = list(parts)
    whole = replace(max(parts, key=lambda part: part.seconds), options=dict(parts[0].options))
    for name in ("processes", "loaders", "batches", "samples", "events"):
        setattr(whole, name, [])
    whole.counters, whole.trials = {}, {}
    for part in parts:
        offset = len(whole.loaders)
        main = next((process.pid for process in part.processes if process.role == "main"), None)
        number = {loader.number: offset + index for index, loader in enumerate(part.loaders)}
        whole.loaders += [replace(each, number=number[each.number], pid=each.pid or main) for each in part.loaders]
        whole.processes += [
            replace(each, loader=None if each.loader is None else number.get(each.loader)) for each in part.processes
        ]
        whole.batches += [replace(each, loader=number[each.loader], pid=each.pid or main) for each in part.batches]
        whole.samples += part.samples
        whole.events += part.events
        whole.trials.update(part.trials)
        whole.failed = whole.failed or part.failed
        _added(whole.counters, part.counters)
    whole.batches.sort(key=lambda batch: batch.requested_ns)
    return whole


def _added(counters: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict):
            _added(counters.setdefault(key, {}), value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            counters[key] = counters.get(key, 0) + value
        else:
            counters.setdefault(key, value)
