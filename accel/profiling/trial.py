"""A trial: the user's own samples made by the backend in force and another, in turns, to predict a switch.

A forked child makes them, so nothing changes in the measured process: no random state, no dataset, no clock.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import random
import select
import signal
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset

from accel.hooks.dataloader import fetched_as_in_worker
from accel.lazy import search
from accel.lazy.tensor_base import LazyTensorBase
from accel.processes import slot_pool, switch
from accel.profiling.measured import Trial
from accel.system import log
from accel.system.cores import delayed_ns
from accel.system.imports import LazyModule
from accel.system.private_names import private
from accel.system.timing import measuring
from accel.system.timing.clocks import system_ns

_FEWEST, _MOST = 6, 96
"""The fewest batches of a backend, and the most images of a turn (unless one batch is larger)."""
_TURN_S, _LEAST_S, _MOST_S = 0.08, 0.6, 3.0
"""Seconds of a backend's turn, without its first samples, which include work done only once; and the least and most
seconds of all turns."""
_ERROR = 0.05
"""The standard error at which the ratio of the backends is known well enough, as crops differ in cost."""
_FIRST, _FIRST_S = 4, 0.03
"""The images that a turn begins with, untimed, and their most seconds: enough to be drawn in one go."""
_REPEATED = 3  # times that each backend makes the very first image
_PATIENCE = 60.0  # seconds: kernels may have to be compiled, once on a machine
_MOST_TEXT = 4096  # bytes that a pipe takes at once

_fcntl = LazyModule("fcntl")
_worker = private("torch.utils.data._utils.worker")
_fetch = private("torch.utils.data._utils.fetch", "_MapDatasetFetcher")


runs = False
"""Whether this process is the child of a trial."""


class Samples(NamedTuple):
    """The parts of a loader that make its samples, as the loader itself may be deleted."""

    dataset: Any
    batch_size: int
    collate_fn: Callable[[Any], Any]
    num_workers: int
    worker_init_fn: Callable[[int], None] | None


def samples(loader: DataLoader[Any]) -> Samples | None:
    """The parts of a loader that make samples; None if these have no indices, or cannot be made in a forked process."""
    if isinstance(loader.dataset, IterableDataset) or loader.batch_size is None or not os.path.isdir("/proc/self/fd"):
        return None
    method = getattr(loader.multiprocessing_context, "get_start_method", multiprocessing.get_start_method)()
    if loader.num_workers and method != "fork":
        return None
    return Samples(loader.dataset, loader.batch_size, loader.collate_fn, loader.num_workers, loader.worker_init_fn)


def measure(its: Samples, name: str = "cpu", say: Callable[[str], object] | None = None) -> Trial | None:
    """Compare a backend with default options to the one in force, on some samples, for one to three seconds.

    Samples that take longer than 0.2 s are made a dozen times.

    ``say`` is called with a text before it begins, if it does.

    Returns:
        the trial; None if it cannot be done here, or a sample fails or takes too long: the log says why.
    """
    present = switch.get_image_backend()
    if name == present or switch.image_backends().get(name, "unknown") is not None:
        return None
    if threading.current_thread() is not threading.main_thread():
        return None
    if say is not None:
        say(f'accel: some samples are made under "{name}" as well, to predict what it would bring: 1 to 3 seconds')
    start = time.perf_counter()
    result = _in_child(lambda: _compared(its, present, name))
    if "error" in result:
        log.note(log.INFO, "the backend %s was not tried on these samples: %s", name, result["error"])
        return None
    return Trial(**result, took_s=time.perf_counter() - start)


def _in_child(make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result of a function that runs in a forked child; {"error": why} if it fails."""
    reading, writing = os.pipe()
    try:
        child = os.fork()
    except (OSError, RuntimeError) as error:  # from Python 3.12 on, at the end of the interpreter
        os.close(reading)
        os.close(writing)
        return {"error": repr(error)}
    if not child:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(int(_PATIENCE))  # in case the parent ends
            _part_files(but=writing)
            globals()["runs"] = True
            measuring.leave()
            try:
                made = make()
            except Exception as error:
                made = {"error": repr(error)[:2000]}
            os.write(writing, json.dumps(made).encode()[:_MOST_TEXT])
        finally:
            os._exit(0)
    os.close(writing)
    try:  # one read: processes that were forked meanwhile may keep the other end open
        text = os.read(reading, _MOST_TEXT) if select.select([reading], [], [], _PATIENCE)[0] else b""
    finally:
        os.close(reading)
        with suppress(ProcessLookupError, ChildProcessError):  # where SIGCHLD is ignored, the system takes children
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    found: dict[str, Any] = json.loads(text or b'{"error": "it took too long, or its process was killed"}')
    return found


def _part_files(but: int) -> None:
    """Give this child its own positions in files: those in open files, sockets and pipes are shared with the parent.

    Sockets and pipes, which cannot have any, are replaced, and reading them here fails. All output of the child is
    discarded: it would be in the user's output and logs twice, and so would what the parent has not flushed yet.
    """
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        try:
            kind = os.fstat(number).st_mode
        except OSError:  # the descriptor that listed the folder
            continue
        access = _fcntl.fcntl(number, _fcntl.F_GETFL) & (os.O_RDONLY | os.O_WRONLY | os.O_RDWR)
        if number in (0, but):
            continue
        if number <= 2 or access == os.O_WRONLY:
            own = os.open(os.devnull, os.O_WRONLY)
        elif stat.S_ISREG(kind):
            own = os.open(f"/proc/self/fd/{number}", access)
            os.lseek(own, os.lseek(number, 0, os.SEEK_CUR), os.SEEK_SET)
        elif stat.S_ISSOCK(kind) or stat.S_ISFIFO(kind):
            own = os.open(os.devnull, os.O_RDWR)
        else:
            continue
        os.dup2(own, number, inheritable=os.get_inheritable(number))
        os.close(own)


def _compared(its: Samples, present: str, name: str) -> dict[str, Any]:
    """Compute a ``Trial``'s fields in the child, which makes samples as a worker does, or a process without workers."""
    start = time.perf_counter()
    torch.set_num_threads(1)  # as in a worker: the parent's threads are not in the child
    if its.num_workers:
        _worker._worker_info = _worker.WorkerInfo(id=0, num_workers=1, seed=0, dataset=its.dataset)
        if its.worker_init_fn is not None:
            its.worker_init_fn(0)
    with slot_pool.loader():  # reused memory for batches, as a worker has
        return _in_turns(its, present, name, start)


def _in_turns(its: Samples, present: str, name: str, start: float) -> dict[str, Any]:
    drawn, length, names = random.Random(0), len(its.dataset), (present, name)
    few = [[drawn.randrange(length)]] * _REPEATED
    slowest = max(min(each.seconds for each in _times_of(its, backend, few, 0)[1:]) for backend in names)
    size = max(min(int(_TURN_S / slowest), its.batch_size), 1)  # the loader's: images of large batches take less
    number = max(min(int(_TURN_S / slowest), _MOST) // size, 1)
    batches = [[drawn.randrange(length) for _ in range(size)] for _ in range(number)]
    batches.insert(0, batches[0][: max(min(int(_FIRST_S / slowest), _FIRST), 1)])
    times: dict[str, list[_Time]] = {backend: [] for backend in names}
    for turn in itertools.count(1):
        for backend in names[:: 1 if turn % 2 else -1]:  # other programs disturb both alike
            times[backend] += _times_of(its, backend, batches, turn)
        if turn == 1:  # without work done once a process, such as compiling kernels: only the samples' time
            made = 2 * (len(few) + sum(map(len, batches)))
            start = max(start, time.perf_counter() - slowest * made)
        spent_s = time.perf_counter() - start
        if turn == 1 and spent_s < _MOST_S:
            times = {backend: [] for backend in names}
        elif _known(times[present], times[name], spent_s):
            break
    base, tried = (_mean(found, size)._asdict() for found in times.values())
    return {"images": size * len(times[name]), **tried, **{f"base_{field}": value for field, value in base.items()}}


class _Time(NamedTuple):
    """Times of a batch or an image, in seconds: without waiting for a core; CPU time; CPU time to free its memory; and
    the system's part of the CPU time."""

    seconds: float
    cpu_s: float
    freed_s: float = 0.0
    system_s: float = 0.0


def _known(base: list[_Time], tried: list[_Time], spent_s: float) -> bool:
    """Whether both were timed often enough for their ratio to be known, or for the longest time."""
    if spent_s < _LEAST_S or len(tried) < _FEWEST:
        return spent_s >= _MOST_S
    present, other = (np.array([each.seconds for each in times]) for times in (base, tried))
    ratio = other.sum() / present.sum()
    error = np.sqrt(((other - ratio * present) ** 2).sum()) / other.sum()
    return bool(error <= _ERROR) or spent_s >= _MOST_S


def _mean(times: list[_Time], images: int) -> _Time:
    return _Time(*(sum(each) / len(times) / images for each in zip(*times, strict=True)))


def _times_of(its: Samples, name: str, batches: list[list[int]], seed: int) -> list[_Time]:
    """Time a backend making all batches but the first, with their values.

    Both backends get the same random numbers, so that they do the same work.
    """
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  as users have it
    fetcher = _fetch._MapDatasetFetcher(its.dataset, True, its.collate_fn, False)
    with switch.image_backend(name):
        return [_time_of(fetcher, indices) for indices in batches][1:]


def _time_of(fetcher: Any, indices: list[int]) -> _Time:
    """Time making a batch, with its values."""
    start = _clocks()
    batch = fetched_as_in_worker(fetcher, indices)
    for each in search.lazy_tensors(batch):
        LazyTensorBase.materialize(each)
    made = _clocks()
    del batch
    undelayed, cpu_s, system_s, clock = (now - before for before, now in zip(start, made, strict=True))
    return _Time(max(undelayed, min(cpu_s, clock)), cpu_s, _clocks()[1] - made[1], min(system_s, cpu_s))


def _clocks() -> tuple[float, float, float, float]:
    """Seconds: without waiting for a core, CPU time, the system's part of that, and by the clock."""
    clock = time.perf_counter()
    return clock - (delayed_ns(of_thread=True) or 0) / 1e9, time.process_time(), system_ns() / 1e9, clock
