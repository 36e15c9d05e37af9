"""Clocks: how long each stage of the input pipeline takes, in every process that takes part, as plain data.

A *stage* is a function that ``timed`` has been put around. Its time is its own: that of stages inside it is taken off.
Each thread counts for itself; a process adds its threads up and writes the sums, counts and histograms to a row of its
own in shared memory, so that nobody waits for anybody and a process that has ended is still known.

Clocks run while somebody measures: the first word of the block says so, and a worker looks at it once a batch. Only
then the functions are put around what they time (``accel.profiling.stages``).
"""

from __future__ import annotations

import math
import mmap
import os
import threading
import time
from array import array
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from accel.system import fork, memory

STAGES = ("idle", "read", "record", "decode", "transform", "kernels", "user", "collate", "send")
STAGES += ("wait", "unpack", "plan", "launch", "copy", "step", "made", "gil")
"""The stages, and what is counted like one: a worker's batches, and how late a thread came to have the GIL."""

IDLE, READ, RECORD, DECODE, TRANSFORM, KERNELS, USER, COLLATE, SEND = range(9)
WAIT, UNPACK, PLAN, LAUNCH, COPY, STEP, MADE, GIL = range(9, 17)

BUCKETS = 172  # quarters of octaves of nanoseconds, as in ``accel.profiling.measured``
COUNT, NS, CPU_NS, CPU_OF_NS, HISTOGRAM = 0, 1, 2, 3, 4
"""What a stage has: how often, how long, and of so much of that time the CPU time; how often in each bucket."""
WIDTH = HISTOGRAM + BUCKETS
_STAGES_SIZE = len(STAGES) * WIDTH

HEADER = ("generation", "pid", "begun_ns", "until_ns", "cpu_ns", "delayed_ns", "threads", "images", "draws", "tasks")
GENERATION, PID, BEGUN, UNTIL, PROCESS_CPU, DELAYED, THREADS, IMAGES, DRAWS, TASKS = range(len(HEADER))
_HEADER_SIZE = 16
TEXTS, TEXT = 24, np.dtype("S248")
"""Statements of the user's that a process was found in: how many, and how long their names may be."""
_TEXTS_SIZE = TEXTS * (TEXT.itemsize // 8 + 1)
_ROWS, _ROW = 512, _HEADER_SIZE + _STAGES_SIZE + _TEXTS_SIZE
_CONTROL, _FOLDER = 128, 8

now = time.perf_counter_ns
cpu_ns = time.thread_time_ns
process_cpu_ns = time.process_time_ns
"""CPU time of a thread and of the process; looked up when it is needed."""

_lock = fork.Lock()
_block: torch.Tensor | None = None
_words: npt.NDArray[np.int64]
_owner: int | None = None
_seen = 0  # the generation that this process counts for; 0: none
_row: npt.NDArray[np.int64] | None = None
_local = threading.local()
_threads: list[Clock] = []
_changes: list[Callable[[bool], object]] = []
sampling_cpu = True
"""Whether stages that begin now measure CPU time, which costs more than the rest."""
_events: list[tuple[int, int, int, int]] | None = None
"""Stages, threads, beginnings and durations that are not written yet; None where no trace is wanted."""
_MOST_EVENTS = 1 << 20  # of a process
ranges: Callable[[str], Any] | None = None
"""Makes a context that shows a stage in torch's profiler, while that is on."""


class Clock:
    """What one thread counts.

    Attributes:
        inside, cpu_inside: nanoseconds spent in stages inside the one that runs.
        stepping, stepping_cpu: since when it has had a batch; 0: it has none.
    """

    __slots__ = ("copied", "counted", "cpu_inside", "inside", "native_id", "stepping", "stepping_cpu", "sums")

    def __init__(self) -> None:
        self.sums = array("q", bytes(8 * _STAGES_SIZE))
        self.counted = np.frombuffer(self.sums, np.int64)
        self.inside = self.cpu_inside = self.stepping = self.stepping_cpu = self.copied = 0
        self.native_id = threading.get_native_id()

    def add(self, stage: int, ns: int, cpu: int | None = None) -> None:
        """Count a stage that took so long."""
        first, sums = stage * WIDTH, self.sums
        sums[first] += 1
        sums[first + 1] += ns
        sums[first + HISTOGRAM + _bucket(ns)] += 1
        if cpu is not None:
            sums[first + 2] += cpu
            sums[first + 3] += ns


def clock() -> Clock:
    """This thread's."""
    try:
        found: Clock = _local.clock
    except AttributeError:
        found = _local.clock = Clock()
        with _lock:
            _threads.append(found)
    return found


def _bucket(ns: int, log2: Callable[[float], float] = math.log2, last: int = BUCKETS - 1) -> int:
    return min(int(4 * log2(ns) + 1e-9), last) if ns > 1 else 0


def timed(stage: int, original: Callable[..., Any]) -> Callable[..., Any]:
    """The function, as a stage."""
    first, shows = stage * WIDTH, stage not in (WAIT, COPY)
    name = f"accel::{STAGES[stage]}"

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
            sums = own.sums
            sums[first] += 1
            sums[first + 1] += ns
            sums[first + 4 + (int(4 * _log2(ns) + 1e-9) if ns > 1 else 0)] += 1
            own.inside = outside + took
            if samples:
                cpu = cpu_ns() - cpu_begun
                sums[first + 2] += cpu - own.cpu_inside
                sums[first + 3] += ns
                own.cpu_inside = cpu_outside + cpu
            if shown is not None:
                shown.__exit__(None, None, None)
            if _events is not None and shows:
                _events.append((stage, own.native_id, begun, took))

    return stage_of


_log2 = math.log2


# -- the block ----------------------------------------------------------------------------------------------


def share(*, own: bool = False) -> torch.Tensor | None:
    """The shared block, made if there is none yet; None where none can be sent to a process that is started.

    ``own``: of this process and those that it starts, not of the one that started this one.
    """
    global _owner
    with _lock:
        if _block is None or (own and _owner != os.getpid()):
            size = 8 * (_CONTROL + _ROWS * _ROW)
            try:
                block = memory.shared((size,), torch.uint8, sparse=True)
            except RuntimeError:
                block = torch.from_numpy(np.frombuffer(mmap.mmap(-1, size), np.uint8))
            join(block)
            _owner = os.getpid()
        assert _block is not None
        return _block if _block.is_shared() else None


def join(block: torch.Tensor | None) -> None:
    """Write to the block that another process shared."""
    global _block, _words, _seen, _row
    if block is not None:
        with _lock:
            _block, _words = block, block.numpy().view(np.int64)
            _seen, _row = 0, None


def on_change(function: Callable[[bool], object]) -> None:
    """Call ``function`` when measuring begins (True) and ends (False), in every process."""
    _changes.append(function)


def look() -> bool:
    """Begin or end measuring if the process that owns the block has; whether that was so. Once a batch."""
    if _block is None or _words[0] == _seen:
        return False
    _turn(int(_words[0]))
    return True


def measuring() -> bool:
    """Whether this process measures."""
    return _seen != 0


def start(folder: str = "") -> None:
    """Have this process measure, and all that share its block; ``folder``: for files of events, if these are wanted.

    Raises:
        RuntimeError: it does already.
    """
    share(own=True)
    if _words[0]:
        raise RuntimeError("this process is being profiled already: accel.profile() cannot be nested")
    _words[_FOLDER:_CONTROL] = 0
    _words[_FOLDER:_CONTROL].view(np.uint8)[: len(os.fsencode(folder))] = list(os.fsencode(folder))
    _words[1] += 1
    _words[0] = _words[1]
    look()


def stop() -> list[Row]:
    """End it; what was measured by each process, this one first."""
    flush()
    generation = int(_words[0])
    rows = rows_of(generation)
    _words[0] = 0
    look()
    return rows


def rows_of(generation: int | None = None) -> list[Row]:
    """What was measured up to now."""
    if _block is None:
        return []
    generation = generation or int(_words[0])
    content = _words[_CONTROL:].reshape(_ROWS, _ROW)
    rows = [Row.of(content[number].copy()) for number in np.flatnonzero(content[:, GENERATION] == generation)]
    return sorted(rows, key=lambda row: row.header["pid"] != os.getpid())


def folder() -> str:
    """Where processes write events; "" if they do not."""
    return os.fsdecode(_words[_FOLDER:_CONTROL].tobytes().rstrip(b"\0"))


def _turn(generation: int) -> None:
    global _seen, _row, _events
    with _lock:
        if _seen:
            _seen = 0
            for change in _changes:
                change(False)
        _forget()
        _events = None
        if generation:
            _seen, _events = generation, [] if folder() else None
            for change in _changes:
                change(True)


def _forget() -> None:
    global _local, _row, _events, sampling_cpu
    _local = threading.local()
    _events = None if _events is None else []
    _threads.clear()
    _row, sampling_cpu = None, True


def _in_child() -> None:
    if _seen:
        _forget()


fork.register(in_child=_in_child)


# -- rows ---------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """What one process measured: ``stages`` [stages, WIDTH]; (name, times) of statements."""

    header: dict[str, int]
    stages: npt.NDArray[np.int64]
    texts: list[tuple[str, int]]

    @classmethod
    def of(cls, words: npt.NDArray[np.int64]) -> Row:
        stages = words[_HEADER_SIZE : _HEADER_SIZE + _STAGES_SIZE].reshape(len(STAGES), WIDTH)
        texts = words[_HEADER_SIZE + _STAGES_SIZE :]
        names, times = texts[TEXTS:].view(TEXT), texts[:TEXTS]
        named = [(names[n].decode("utf-8", "replace"), int(times[n])) for n in range(TEXTS) if times[n]]
        return cls(dict(zip(HEADER, words.tolist(), strict=False)), stages, named)


def row() -> npt.NDArray[np.int64] | None:
    """This process's row; None where nobody measures, or there is none left."""
    global _row, _cpu_begun, _delayed_begun, _delayed_at
    if _row is None and _seen:
        pid = os.getpid()
        content = _words[_CONTROL:].reshape(_ROWS, _ROW)
        for number in range(pid, pid + _ROWS):
            found = content[number % _ROWS]
            if found[GENERATION] != _seen or found[PID] == pid:
                found[:] = 0
                found[PID], found[GENERATION], found[BEGUN] = pid, _seen, now()
                _row, _cpu_begun, _delayed_at = found, process_cpu_ns(), now()
                _delayed_begun = delayed_ns()
                break
    return _row


_cpu_begun = 0
_delayed_begun: int | None = None
_delayed_at = 0
_EVERY = 200_000_000  # ns


def total_ns(stage: int) -> int:
    """Nanoseconds that the threads of this process have spent in a stage."""
    return sum(each.sums[stage * WIDTH + NS] for each in tuple(_threads))


def flush() -> None:
    """Write what the threads of this process have counted to its row."""
    global _delayed_at, _events
    found = row()
    if found is None:
        return
    threads = list(_threads)
    total = sum((each.counted for each in threads), np.zeros(_STAGES_SIZE, np.int64))
    found[_HEADER_SIZE : _HEADER_SIZE + _STAGES_SIZE] = total
    found[THREADS] = sum(any(each.sums[stage * WIDTH] for stage in _POOLED) for each in threads)
    found[UNTIL], found[PROCESS_CPU] = now(), process_cpu_ns() - _cpu_begun
    if _events:
        written, _events = _events, []
        with suppress(OSError), open(os.path.join(folder(), str(os.getpid())), "ab") as file:
            if file.tell() < _MOST_EVENTS * 32:
                file.write(np.array(written, np.int64).tobytes())
    if _delayed_begun is not None and now() - _delayed_at > _EVERY:
        found[DELAYED], _delayed_at = (delayed_ns() or 0) - _delayed_begun, now()


def write_texts(found: npt.NDArray[np.int64], texts: list[tuple[str, int]]) -> None:
    """Write statements, and how often a process was found at each, to its row."""
    place = found[_HEADER_SIZE + _STAGES_SIZE :]
    names = place[TEXTS:].view(TEXT)
    for number, (text, times) in enumerate(texts[:TEXTS]):
        names[number], place[number] = text.encode()[-TEXT.itemsize :], times


_POOLED = (DECODE, TRANSFORM, KERNELS)


def delayed_ns() -> int | None:
    """How long threads of this process could have run and had no core, in all; None where the system does not tell."""
    total = 0
    try:
        for thread in os.listdir("/proc/self/task"):
            with suppress(FileNotFoundError), open(f"/proc/self/task/{thread}/schedstat") as file:
                total += int(file.read().split()[1])
    except (OSError, IndexError):
        return None
    return total
