"""Clocks of the main process: waiting for batches, the steps with them, copies to a device, ending workers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial, wraps
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function
from torch.utils.data import get_worker_info

from accel.lazy.tensor_base import LazyTensorBase
from accel.profiling import fetching
from accel.profiling.loader_records import LoaderRecords, extent
from accel.profiling.measured import BatchTimes
from accel.profiling.sampler import sampler
from accel.runtime import streams
from accel.system.timing import clocks, measuring
from accel.system.timing.clocks import COPY, RECEIVE, STEP, UNPACK, WAIT

Function = Callable[..., Any]

_MANY_DONE = 4096  # the most ended stages to keep before they are added up
records = LoaderRecords()


def begin() -> None:
    """Reset everything, as measuring begins in this process."""
    global records
    records = LoaderRecords()


ends: list[Callable[[int], object]] = []
"""Called with a loader's number when an epoch of it has ended; their time counts for no stage."""
listeners: list[Callable[[], object]] = []
"""Called now and then as a batch is returned, in the thread that takes it."""


def iterate(original: Function) -> Function:
    """Time ``DataLoader.__iter__``."""

    @wraps(original)
    def clocked(self: Any) -> Any:
        if get_worker_info() is not None or not measuring.measuring():
            return original(self)
        clock = clocks.clock()
        if self.num_workers:
            records.set_aside()
        if clock.fetches:  # of a loader inside a dataset, so part of the dataset's work
            with sampler.paused(self.num_workers > 0):
                return original(self)
        clock.batch = None  # its epoch was left, or is resumed later, so the time up to now is no step of it
        since = _end_step(clock)
        records.start = records.start or since
        try:
            with sampler.paused(self.num_workers > 0):
                iterator = original(self)
        except BaseException as error:
            _begin_step(clock, since)
            records.failed = _summary(error)
            raise
        records.begin(iterator, self, since)
        _clock_receiving(iterator)
        _begin_step(clock, since)
        return iterator

    return clocked


def take(original: Function) -> Function:
    """Time ``__next__`` of a DataLoader's iterator."""

    @wraps(original)
    def clocked(self: Any) -> Any:
        clock = clocks.clock()
        if get_worker_info() is not None or not measuring.measuring() or clock.fetches:
            return original(self)
        start = _end_step(clock)
        records.start = records.start or start
        loader, epoch, _ = records.epoch(self)
        fetching.begin_batch()
        number, samples, event = self._num_yielded, clocks.sampling_cpu, streams.mark()
        cpu_of_all, cpu_start = (clocks.process_cpu_ns(), clocks.cpu_ns()) if samples else (None, 0)
        try:
            with nullcontext() if clocks.ranges is None else clocks.ranges("accel::wait"):
                data = original(self)
        except BaseException as error:
            _failed(self, clock, start, error)
            raise
        ended, cpu = clocks.now(), clocks.cpu_ns() - cpu_start if samples else None
        dry = None if event is None else bool(event.query())
        if not number:
            records.started(self)
        images, size = extent(data, loader.batch_size, self._auto_collation)
        records.images += images
        clock.batch = BatchTimes(
            loader.number, epoch, number, images, start, ended - start, size, dry=dry, cpu_ns=cpu_of_all
        )
        records.batches.append(clock.batch)
        if len(clock.done) > _MANY_DONE:
            measuring.flush()
        for listener in listeners:
            listener()
        _begin_step(clock, start, cpu)
        return data

    return clocked


def _failed(iterator: Any, clock: clocks.Clock, start: int, error: BaseException) -> None:
    """Handle that there is no batch: an epoch has ended, or an error was raised."""
    _begin_step(clock, start)
    if not isinstance(error, StopIteration):
        records.failed = _summary(error)
        return
    records.exhausted.add(iterator)
    for end in ends:
        end(records.epoch(iterator)[0].number)
    paused = clocks.now() - clock.stepping  # that time is left out
    records.start += paused
    records.until += paused
    clock.stepping += paused


def _summary(error: BaseException) -> str:
    """An error's type and the end of its text: a worker's is a traceback, whose last lines say what happened."""
    text = str(error)
    return f"{type(error).__name__}: {text if len(text) <= 1000 else f'...{text[-1000:]}'}"


def _begin_step(clock: clocks.Clock, start: int, cpu: int | None = None) -> None:
    """Begin a step, and record the wait from ``start`` to now, without the stages that ran meanwhile."""
    records.until = clock.stepping = clocks.now()
    waited = clock.stepping - start - clock.inside
    clock.add(WAIT, waited, max(cpu - clock.cpu_inside, 0) if cpu is not None else None)
    clock.stepping_cpu = (clocks.cpu_ns(), clocks.process_cpu_ns()) if clocks.sampling_cpu else None
    clock.inside = clock.cpu_inside = 0
    clock.copied = clock.copies


def _end_step(clock: clocks.Clock) -> int:
    """End a step, as the thread requests the next batch; return the time."""
    at = clocks.now()
    if clock.stepping:
        took, cpu, of_all = at - clock.stepping - clock.inside, None, None
        if clock.stepping_cpu is not None:
            ended, inside = (clocks.cpu_ns(), clocks.process_cpu_ns()), clock.cpu_inside
            cpu, of_all = (max(now - start - inside, 0) for start, now in zip(clock.stepping_cpu, ended, strict=True))
        clock.add(STEP, took, cpu)
        batch: BatchTimes | None = clock.batch
        if batch is not None:
            batch.copy_ns = clock.copies - clock.copied
            batch.step_ns, batch.step_cpu_ns, batch.step_cpu_of_all_ns = took, cpu, of_all
    clock.batch = None
    clock.stepping = clock.inside = clock.cpu_inside = 0
    return at


def _clock_receiving(iterator: Any) -> None:
    """Time the reading of messages; one that is larger than a pipe is still being sent as it is read."""
    queue: Any = getattr(iterator, "_worker_result_queue", None)
    plain = getattr(queue, "_recv_bytes", None)
    if plain is None or hasattr(plain, "__wrapped__"):
        return
    queue._recv_bytes = _timed(RECEIVE, plain)  # of this queue only, which has no other reader


def unpickle(original: Any) -> Any:
    """Time ``ForkingPickler.loads`` in a thread that takes batches."""
    plain = original.__func__ if isinstance(original, staticmethod) else original
    return staticmethod(_timed(UNPACK, plain))


def _timed(stage: int, plain: Function) -> Function:
    """Time a function as a stage in this process, not in a worker."""
    timed = clocks.timed(stage, plain)

    @wraps(plain)
    def clocked(*args: Any, **kwargs: Any) -> Any:
        measured = measuring.measuring() and get_worker_info() is None
        return (timed if measured else plain)(*args, **kwargs)

    return clocked


def move(original: Function) -> Function:
    """Time ``Tensor.to`` or ``Tensor.cuda`` of plain tensors in a step; calls that copy nothing to another device are
    no part of the stage."""

    @wraps(original)
    def clocked(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        # a class that overrides the method must find it by its name, as without clocks
        overridden = has_torch_function((self, *args))
        method = partial(handle_torch_function, original, (self, *args)) if overridden else original
        clock = clocks.clock()
        if not clock.stepping or isinstance(self, LazyTensorBase):  # lazy ones have a clock of their own
            return method(self, *args, **kwargs)
        outside, start = clock.inside, clocks.now()
        result = method(self, *args, **kwargs)
        if isinstance(result, torch.Tensor) and result is not self and result.device != self.device:
            took = clocks.now() - start
            ns = took - (clock.inside - outside)
            clock.add(COPY, ns)
            clock.copies += ns
            clock.inside = outside + took
        return result

    return clocked


def end_workers(original: Function) -> Function:
    """Time ``_shutdown_workers`` of an iterator, called in its last ``next()``, or as it is deleted: after every epoch
    unless workers are persistent."""

    @wraps(original)
    def clocked(self: Any) -> Any:
        if get_worker_info() is not None or not measuring.measuring() or self._shutdown:
            return original(self)
        clock, start, cpu = clocks.clock(), clocks.now(), clocks.cpu_ns()
        try:
            return original(self)
        finally:
            took = clocks.now() - start
            records.ended(self, took)
            if clock.stepping:  # not counted as a part of the step
                clock.add(WAIT, took)
                clock.inside += took
                clock.cpu_inside += clocks.cpu_ns() - cpu

    return clocked


_DATALOADER = "torch.utils.data.dataloader"
REPLACED: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("torch.utils.data.DataLoader.__iter__", iterate),
    (f"{_DATALOADER}._BaseDataLoaderIter.__next__", take),
    (f"{_DATALOADER}._MultiProcessingDataLoaderIter._shutdown_workers", end_workers),
    ("multiprocessing.reduction.ForkingPickler.loads", unpickle),
    ("torch.Tensor.to", move),
    ("torch.Tensor.cuda", move),
)
