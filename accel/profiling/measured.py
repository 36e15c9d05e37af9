"""What was measured of a training, between collecting and judging: plain data without torch, that JSON can hold.

``None`` says "not measured", wherever it stands, and is never shown as 0. Times are nanoseconds of the monotonic clock
(``time.perf_counter_ns`` of one machine) where a name ends in ``_ns``, and seconds in ``seconds`` and ``_s``.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, get_args, get_origin, get_type_hints

WORKER_STAGES = ("idle", "read", "record", "decode", "transform", "kernels", "user", "collate", "send")
"""What a worker does, or the main process for it where a loader has none; in the order that an image meets them."""
MAIN_STAGES = ("wait", "receive", "unpack", "plan", "launch", "copy", "step")
"""What the main process does."""
STAGES = WORKER_STAGES + MAIN_STAGES

VERSION = 1
BUCKETS = 172  # quarters of octaves: up to 2**43 ns, 2.4 hours; longer ones count in the last


def bucket(ns: int) -> int:
    """Index of the bucket of a histogram that has a time: bucket i holds [2**(i/4), 2**((i+1)/4)) ns."""
    return min(int(4 * math.log2(ns) + 1e-9), BUCKETS - 1) if ns > 1 else 0


@dataclass
class Spent:
    """How often something was done, how long it took in all, and how the times are spread."""

    count: int = 0
    ns: int = 0
    cpu_ns: int | None = None
    histogram: list[int] = field(default_factory=list)
    """Counts of the buckets from 0 on; empty if not measured, and as short as the highest one in use allows."""

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
        wanted = sum(self.histogram) * percent / 100
        for index, count in enumerate(self.histogram):
            wanted -= count
            if count and wanted <= 0:
                return float(2 ** ((index + 0.5) / 4))
        return None


def total(spent: Iterable[Spent]) -> Spent:
    """The times of several together; the CPU time is not measured if that of one is not."""
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
    """A process and where its time went; the stages add up to ``seconds``, those on a pool's threads apart."""

    pid: int
    role: str  # "main" or "worker"
    rank: int | None = None
    loader: int | None = None
    worker: int | None = None
    seconds: float = 0.0  # under measurement
    cpu_s: float | None = None  # CPU time of all its threads meanwhile
    threads: int = 1  # of its pool that share the stages' work; 1 if the stages ran on the thread that asked
    stages: dict[str, Spent] = field(default_factory=dict)
    """Those within a fetch are estimates: timed in some batches, and for the others in proportion to these."""
    images: int | None = None  # that it made (a worker), or was given (the main process)
    made: Spent | None = None
    """A worker's batches but its first two: from having the indices to having made it."""
    delayed_s: float | None = None
    """Seconds that its threads could have run without a core, a worker's after its first batches (Linux: run_delay)."""
    gil: Spent | None = None
    """How late a thread that wanted the GIL came to have it (the sampler's): mean and spread."""
    first: Spent | None = None
    """CPU time to the end of a worker's first two batches; ``count``: of them, in all that took each other's place."""
    before_cpu_s: float | None = None  # CPU time before it was measured, if it was started meanwhile: imports
    system: float | None = None  # share of its CPU time that the system took, to give it memory; as ``delayed_s``


@dataclass
class Batch:
    """A batch that the main process asked for. The first of an epoch is number 0, and kept apart in every mean."""

    loader: int
    epoch: int
    number: int
    images: int
    asked_ns: int
    wait_ns: int
    bytes: int | None = None
    copy_ns: int | None = None
    step_ns: int | None = None
    """Until the next one was asked for, without ``copy_ns``; None where an epoch began instead."""
    step_cpu_ns: int | None = None
    """The main thread's CPU time of that; ``of_all``: of all threads of its process."""
    step_cpu_of_all_ns: int | None = None
    ready: int | None = None
    """Finished batches that waited when this one was asked for."""
    dry: bool | None = None  # whether the GPU had nothing left to do when the batch came
    pid: int | None = None  # the main process that asked, where several are put together
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
    """How workers are started: "none", "fork", "spawn" or "forkserver"."""
    dataset: str = ""
    length: int | None = None
    """Batches of an epoch."""
    startup_ns: list[int] = field(default_factory=list)
    """From ``iter()`` to the first batch, for each epoch."""
    ended_ns: list[int] = field(default_factory=list)
    """To end the workers, for each epoch that they do not outlive."""
    renewed: bool = False
    """Whether it was several DataLoaders, one after another: a new one for each epoch."""
    draws: bool | None = None
    """Whether making a sample draws random numbers in the worker, so that another ``num_workers`` gives others."""
    pid: int | None = None
    """The main process that it belongs to, where several are put together."""


@dataclass
class Machine:
    cores: int = 1
    """That this process may use: affinity, the cgroup's quota; ``busy``: share of them, by whatever process."""
    cores_all: int = 1
    busy: float | None = None
    memory_free: int | None = None
    shm_free: int | None = None
    gpu: str | None = None
    world_size: int = 1
    """Ranks on this machine."""


@dataclass
class Sample:
    """A statement of the user's in which a process was found."""

    file: str
    line: int
    function: str
    text: str
    process: int
    count: int
    loading: bool = True
    """Whether it was making a sample or a batch; False: it was the training loop's."""


@dataclass
class Trial:
    """The same samples made by the backend in force and by another, in turns, in one process on one thread."""

    images: int
    seconds: float
    """An image took under the other backend, in a worker, without waiting for indices or for a core; ``base_``: under
    the one in force; ``took_s``: all of the trial."""
    cpu_s: float
    base_seconds: float
    base_cpu_s: float
    took_s: float | None = None
    freed_s: float = 0.0
    """CPU time to free an image's memory, which the main process does; ``base_``: under the one in force."""
    base_freed_s: float = 0.0
    system_s: float = 0.0
    base_system_s: float = 0.0  # what of the CPU time of an image the system took


@dataclass
class Measured:
    """All of it. ``to_dict`` and ``from_dict`` lead to JSON and back."""

    version: int = VERSION
    backend: str = "torchvision"
    options: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    processes: list[Process] = field(default_factory=list)
    loaders: list[Loader] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    """The last 4,096 of a process; histograms of all are among the main process's stages."""
    machine: Machine = field(default_factory=Machine)
    samples: list[Sample] = field(default_factory=list)
    counters: dict[str, Any] = field(default_factory=dict)
    """``accel.stats()`` of the time."""
    events: list[tuple[int, int, str, int, int]] = field(default_factory=list)
    """(pid, tid, name, start_ns, ns), for a trace; empty if not asked for."""
    trials: dict[str, Trial] = field(default_factory=dict)
    """Measured on the spot, by the other backend's name."""
    failed: str | None = None
    """The error that a loader's ``next()`` ended with."""
    backends: list[str] = field(default_factory=list)
    """That can run here."""

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Measured:
        """The opposite of ``to_dict``; a ValueError if another version wrote it. Unknown keys are passed over."""
        if values.get("version") != VERSION:
            raise ValueError(f"measured by version {values.get('version')}; this is version {VERSION}")
        made: Measured = _made(cls, values)
        return made

    def to_json(self) -> str:
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Measured:
        return cls.from_dict(json.loads(text))


def merged(parts: Iterable[Measured]) -> Measured:
    """What several ranks or processes of one machine measured, as one; numbers of loaders and batches go on."""
    parts = list(parts)
    whole = dataclasses.replace(max(parts, key=lambda part: part.seconds), options=dict(parts[0].options))
    for name in ("processes", "loaders", "batches", "samples", "events"):
        setattr(whole, name, [])
    whole.counters, whole.trials = {}, {}
    for part in parts:
        offset = len(whole.loaders)
        main = next((process.pid for process in part.processes if process.role == "main"), None)
        number = {loader.number: offset + index for index, loader in enumerate(part.loaders)}
        whole.loaders += [
            dataclasses.replace(each, number=number[each.number], pid=each.pid or main) for each in part.loaders
        ]
        whole.processes += [
            dataclasses.replace(each, loader=None if each.loader is None else number.get(each.loader))
            for each in part.processes
        ]
        whole.batches += [
            dataclasses.replace(each, loader=number[each.loader], pid=each.pid or main) for each in part.batches
        ]
        whole.samples += part.samples
        whole.events += part.events
        whole.trials.update(part.trials)
        whole.failed = whole.failed or part.failed
        _added(whole.counters, part.counters)
    whole.batches.sort(key=lambda batch: batch.asked_ns)
    return whole


def _added(counters: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict):
            _added(counters.setdefault(key, {}), value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            counters[key] = counters.get(key, 0) + value
        else:
            counters.setdefault(key, value)


def _made(wanted: Any, value: Any) -> Any:
    """A value of JSON as what a field's annotation wants."""
    if value is None:
        return None
    if dataclasses.is_dataclass(wanted):
        hints = get_type_hints(wanted)
        fields = {
            each.name: _made(hints[each.name], value[each.name])
            for each in dataclasses.fields(wanted)
            if each.name in value
        }
        return wanted(**fields)  # type: ignore[operator]
    arguments = get_args(wanted)
    if get_origin(wanted) is list:
        return [_made(arguments[0], each) for each in value]
    if get_origin(wanted) is dict:
        return {key: _made(arguments[1], each) for key, each in value.items()}
    if get_origin(wanted) is tuple:
        return tuple(value)
    inner = [each for each in arguments if dataclasses.is_dataclass(each)]
    return _made(inner[0], value) if inner else value
