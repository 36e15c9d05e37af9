"""Clocks of the main process: waiting for batches, the steps with them, copies to a device, ending workers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial, wraps
from typing import Any
from weakref import ref

import torch
from torch.overrides import handle_torch_function, has_torch_function
from torch.utils.data import get_worker_info

from accel.lazy.tensor_base import LazyTensorBase
from accel.profiling import fetching
from accel.profiling.loader_records import LoaderRecords, extent
from accel.profiling.measured import BatchTimes, Loader
from accel.profiling.sampler import sampler
from accel.runtime import streams
from accel.system.timing import clocks, measuring
from accel.system.timing.clocks import COPY, RECEIVE, STEP, UNPACK, WAIT

Function = Callable[..., Any]

_MANY_DONE = 4096  # the most ended stages to keep before they are added up
_OFTEN = 250_000_000  # ns, the longest time after which the next batch is reported to listeners
_due = sys.maxsize


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
        if clock.section:  # of a loader inside a dataset, so part of the dataset's work
            with sampler.paused(self.num_workers > 0):
                return original(self)
        gather(clock)
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
    """Time ``__next__`` of a DataLoader's iterator.

    For most batches as little as possible is recorded, in one function: after a batch is computed the processor's
    caches have nothing of Python's, and its code runs ten times as slowly.
    """
    now = clocks.now

    @wraps(original)
    def clocked(self: Any) -> Any:
        own = getattr(clocks.local, "clock", None)
        if own is None or not own.left or own.iterator() is not self:
            return _take_in_full(original, self)
        start, before = now(), (own.stepping, own.inside, own.copies)
        own.left -= 1
        own.stepping = own.inside = 0
        try:
            data = original(self)
        except BaseException as error:
            inside, own.left = own.inside, 0
            own.stepping, own.inside, _ = before
            _end_step(own, start)
            own.inside = inside
            _failed(self, own, start, error)
            raise
        ended = now()
        own.plain.append((*before, start, ended, own.inside))
        own.inside, own.stepping = 0, ended
        if ended > _due:
            own.left = 0  # the next one is recorded in full
        return data

    return clocked


def _take_in_full(original: Function, iterator: Any) -> Any:
    global _due
    clock = clocks.clock()
    if get_worker_info() is not None or not measuring.measuring() or clock.section:
        return original(iterator)
    start = _end_step(clock)
    records.start = records.start or start
    loader, epoch, _ = records.epoch(iterator)
    fetching.begin_batch()
    number, ready, event = iterator._num_yielded, _ready(iterator) if clocks.detailed else None, streams.mark()
    cpu_start, cpu_of_all = (clocks.cpu_ns(), clocks.process_cpu_ns()) if clocks.sampling_cpu else (None, None)
    try:
        with nullcontext() if clocks.ranges is None else clocks.ranges("accel::wait"):
            data = original(iterator)
    except BaseException as error:
        _failed(iterator, clock, start, error)
        raise
    ended, cpu = clocks.now(), None if cpu_start is None else clocks.cpu_ns() - cpu_start
    dry = None if event is None else bool(event.query())
    if not number:
        records.started(iterator)
    images, size = extent(data, loader.batch_size, iterator._auto_collation)
    records.images += images
    batch = BatchTimes(loader.number, epoch, number, images, start, ended - start, size, ready=ready, dry=dry)
    batch.cpu_ns = cpu_of_all
    records.batches.append(batch)
    clock.batch = batch
    if len(clock.done) > _MANY_DONE:
        measuring.flush()
    _due = ended + _OFTEN if listeners else sys.maxsize
    for listener in listeners:
        listener()
    _begin_step(clock, start, cpu)
    _foresee(clock, iterator, loader, batch)
    return data


def _failed(iterator: Any, clock: clocks.Clock, start: int, error: BaseException) -> None:
    """Handle that there is no batch: an epoch has ended, or an error was raised."""
    clock.batch = None
    _begin_step(clock, start)
    if not isinstance(error, StopIteration):
        records.failed = _summary(error)
        return
    records.exhausted.add(iterator)
    for end in ends:
        end(records.epoch(iterator)[0].number)
    paused = clocks.now() - clock.stepping
    records.start, clock.stepping = records.start + paused, clock.stepping + paused  # leave that time out


def _foresee(clock: clocks.Clock, iterator: Any, loader: Loader, batch: BatchTimes) -> None:
    """Set how many of the next batches need little recorded: none detailed, of another size, or an epoch's last."""
    if not loader.length or iterator._dataset_kind:
        return
    if batch.images != loader.batch_size and batch.number < loader.length - 1:
        records.uneven.add(loader.number)
    if loader.number in records.uneven or batch.images != loader.batch_size:
        return
    clock.left = max(min(fetching.until_detailed(), loader.length - 2 - batch.number), 0)
    clock.iterator = ref(iterator)


def gather(clock: clocks.Clock) -> None:
    """Make ``BatchTimes`` objects from a thread's short records."""
    entries, clock.plain = clock.plain, []
    like: BatchTimes | None = clock.batch
    if like is None:
        return
    for number, (stepping, inside, copies, start, ended, within) in enumerate(entries, 1):
        _step_ended(clock, start - stepping - inside, copies)
        clock.add(WAIT, ended - start - within)
        clock.copied = copies
        clock.batch = BatchTimes(
            like.loader, like.epoch, like.number + number, like.images, start, ended - start, bytes=like.bytes
        )
        records.batches.append(clock.batch)
        records.images += like.images
        records.until = ended
    fetching.skip(len(entries))


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


def _end_step(clock: clocks.Clock, at: int = 0) -> int:
    """End a step, as the thread requests the next batch: ``at`` this time, or now; return the time."""
    at, clock.left = at or clocks.now(), 0
    gather(clock)
    if clock.stepping:
        cpu = of_all = None
        if clock.stepping_cpu is not None:
            ended, inside = (clocks.cpu_ns(), clocks.process_cpu_ns()), clock.cpu_inside
            cpu, of_all = (max(now - start - inside, 0) for start, now in zip(clock.stepping_cpu, ended, strict=True))
        _step_ended(clock, at - clock.stepping - clock.inside, clock.copies, cpu, of_all)
    clock.batch = None
    clock.stepping = clock.inside = clock.cpu_inside = 0
    return at


def _step_ended(
    clock: clocks.Clock, took: int, copies: int, cpu: int | None = None, cpu_of_all: int | None = None
) -> None:
    clock.add(STEP, took, cpu)
    batch: BatchTimes | None = clock.batch
    if batch is not None:
        batch.copy_ns = copies - clock.copied
        batch.step_ns, batch.step_cpu_ns, batch.step_cpu_of_all_ns = took, cpu, cpu_of_all


def _ready(iterator: Any) -> int | None:
    """The number of finished batches that wait; None if not known."""
    tasks = getattr(iterator, "_task_info", None)
    if tasks is None:
        return None
    try:
        queued = iterator._worker_result_queue.qsize()
        if iterator._data_queue is not iterator._worker_result_queue:
            queued += iterator._data_queue.qsize()
    except NotImplementedError:  # macOS
        return None
    return int(queued) + sum(len(info) == 2 for info in tasks.values())


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
