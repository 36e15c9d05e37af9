"""Clocks of the main process: waiting for batches, and the steps with them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any
from weakref import ref

from torch.utils.data import get_worker_info

from accel.profiling import fetching
from accel.profiling.measured import Batch, Loader
from accel.profiling.sampler import sampler
from accel.profiling.watched import Watched
from accel.runtime import streams
from accel.system.timing import clocks, measuring
from accel.system.timing.clocks import RECEIVE, STEP, UNPACK, WAIT

Function = Callable[..., Any]


_MANY_DONE = 4096  # the most ended stages to keep before they are added up
_OFTEN = 250_000_000  # ns, the longest time after which the next batch is reported to listeners
_due = sys.maxsize


watched = Watched()


def begin() -> None:
    """Reset everything, as measuring begins in this process."""
    global watched
    watched = Watched()


ends: list[Callable[[int], object]] = []
"""Called with a loader's number when an epoch of it has ended; their time counts for no stage."""
listeners: list[Callable[[], object]] = []
"""Called now and then as a batch is returned, in the thread that takes it."""


def iterated(original: Function) -> Function:
    """Time ``DataLoader.__iter__``."""

    @wraps(original)
    def begin(self: Any) -> Any:
        if get_worker_info() is not None or not measuring.measuring():
            return original(self)
        clock = clocks.clock()
        if self.num_workers:
            watched.set_aside()
        if clock.section:  # of a loader inside a dataset, so part of the dataset's work
            with sampler.paused(self.num_workers > 0):
                return original(self)
        gather(clock)
        clock.batch = None  # its epoch was left, or is resumed later, so the time up to now is no step of it
        asked = _end_step(clock)
        watched.begun = watched.begun or asked
        try:
            with sampler.paused(self.num_workers > 0):
                iterator = original(self)
        except BaseException as error:
            _begin_step(clock, asked)
            watched.failed = _said(error)
            raise
        watched.begin(iterator, self, asked)
        _clock_receiving(iterator)
        _begin_step(clock, asked)
        return iterator

    return begin


def asked(original: Function) -> Function:
    """Time ``__next__`` of a DataLoader's iterator.

    For most batches as little as possible is recorded, in one function: after a batch is computed the processor's
    caches have nothing of Python's, and its code runs ten times as slowly.
    """
    now = clocks.now

    @wraps(original)
    def give(self: Any) -> Any:
        own = getattr(clocks.local, "clock", None)
        if own is None or not own.left or own.iterator() is not self:
            return noted(self)
        begun, before = now(), (own.stepping, own.inside, own.copies)
        own.left -= 1
        own.stepping = own.inside = 0
        try:
            data = original(self)
        except BaseException as error:
            inside, own.left = own.inside, 0
            own.stepping, own.inside, _ = before
            _end_step(own, begun)
            own.inside = inside
            _failed(self, own, begun, error)
            raise
        taken = now()
        own.plain.append((*before, begun, taken, own.inside))
        own.inside, own.stepping = 0, taken
        if taken > _due:
            own.left = 0  # the next one is recorded in full
        return data

    def noted(self: Any) -> Any:
        global _due
        if get_worker_info() is not None or not measuring.measuring():
            return original(self)
        clock = clocks.clock()
        if clock.section:
            return original(self)
        begun = _end_step(clock)
        watched.begun = watched.begun or begun
        loader, epoch, _ = watched.epoch(self)
        fetching.begin_batch()
        number, ready, event = self._num_yielded, _ready(self) if clocks.telling else None, streams.mark()
        cpu_begun, cpu_of_all = (clocks.cpu_ns(), clocks.process_cpu_ns()) if clocks.sampling_cpu else (None, None)
        try:
            if clocks.ranges is None:
                data = original(self)
            else:
                with clocks.ranges("accel::wait"):
                    data = original(self)
        except BaseException as error:
            clock.batch = None
            _failed(self, clock, begun, error)
            raise
        taken, cpu = clocks.now(), None if cpu_begun is None else clocks.cpu_ns() - cpu_begun
        dry = None if event is None else bool(event.query())
        if not number:
            watched.started(self)
        images, size = watched.extent(data, loader, self._auto_collation)
        watched.images += images
        batch = Batch(loader.number, epoch, number, images, begun, taken - begun, size, ready=ready, dry=dry)
        batch.cpu_ns = cpu_of_all
        watched.batches.append(batch)
        clock.batch = batch
        if len(clock.done) > _MANY_DONE:
            measuring.flush()
        _due = taken + _OFTEN if listeners else sys.maxsize
        for listener in listeners:
            listener()
        _begin_step(clock, begun, cpu)
        _foresee(clock, self, loader, batch)
        return data

    return give


def _failed(iterator: Any, clock: clocks.Clock, begun: int, error: BaseException) -> None:
    """Handle that there is no batch: an epoch has ended, or an error was raised."""
    clock.batch = None
    _begin_step(clock, begun)
    if not isinstance(error, StopIteration):
        watched.failed = _said(error)
        return
    watched.over(iterator)
    for end in ends:
        end(watched.epoch(iterator)[0].number)
    paused = clocks.now() - clock.stepping
    watched.begun, clock.stepping = watched.begun + paused, clock.stepping + paused  # leave that time out


def _foresee(clock: clocks.Clock, iterator: Any, loader: Loader, batch: Batch) -> None:
    """Set how many of the next batches need little recorded: none told apart, of another size, or an epoch's last."""
    if not loader.length or iterator._dataset_kind:
        return
    if batch.images != loader.batch_size and batch.number < loader.length - 1:
        watched.uneven.add(loader.number)
    if loader.number in watched.uneven or batch.images != loader.batch_size:
        return
    clock.left = max(min(fetching.untold(), loader.length - 2 - batch.number), 0)
    clock.iterator = ref(iterator)


def gather(clock: clocks.Clock) -> None:
    """Make ``Batch`` objects from a thread's short records."""
    noted, clock.plain = clock.plain, []
    like: Batch | None = clock.batch
    if like is None:
        return
    for number, (stepping, inside, copies, begun, taken, within) in enumerate(noted, 1):
        _step_ended(clock, begun - stepping - inside, copies)
        clock.add(WAIT, taken - begun - within)
        clock.copied = copies
        clock.batch = Batch(
            like.loader, like.epoch, like.number + number, like.images, begun, taken - begun, bytes=like.bytes
        )
        watched.batches.append(clock.batch)
        watched.images += like.images
        watched.until = taken
    fetching.skip(len(noted))


def _said(error: BaseException) -> str:
    """An error's type and the end of its text: a worker's is a traceback, whose last lines say what happened."""
    text = str(error)
    return f"{type(error).__name__}: {text if len(text) <= 1000 else f'...{text[-1000:]}'}"


def _begin_step(clock: clocks.Clock, asked: int, cpu: int | None = None) -> None:
    """Begin a step, and record the wait that ends now, without the stages that ran meanwhile."""
    watched.until = clock.stepping = clocks.now()
    waited = clock.stepping - asked - clock.inside
    clock.add(WAIT, waited, max(cpu - clock.cpu_inside, 0) if cpu is not None else None)
    clock.stepping_cpu = (clocks.cpu_ns(), clocks.process_cpu_ns()) if clocks.sampling_cpu else None
    clock.inside = clock.cpu_inside = 0
    clock.copied = clock.copies


def _end_step(clock: clocks.Clock, asked: int = 0) -> int:
    """End a step, as the thread asks for the next batch: at the time ``asked``, or now; return the time."""
    asked, clock.left = asked or clocks.now(), 0
    gather(clock)
    if clock.stepping:
        cpu = of_all = None
        if clock.stepping_cpu is not None:
            ended, inside = (clocks.cpu_ns(), clocks.process_cpu_ns()), clock.cpu_inside
            cpu, of_all = (max(now - begun - inside, 0) for begun, now in zip(clock.stepping_cpu, ended, strict=True))
        _step_ended(clock, asked - clock.stepping - clock.inside, clock.copies, cpu, of_all)
    clock.batch = None
    clock.stepping = clock.inside = clock.cpu_inside = 0
    return asked


def _step_ended(
    clock: clocks.Clock, took: int, copies: int, cpu: int | None = None, cpu_of_all: int | None = None
) -> None:
    clock.add(STEP, took, cpu)
    batch: Batch | None = clock.batch
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
    queue._recv_bytes = _timed_often(RECEIVE, plain)  # of this queue only, which has no other reader


def unpickled(original: Any) -> Any:
    """Time ``ForkingPickler.loads`` in a thread that takes batches."""
    plain = original.__func__ if isinstance(original, staticmethod) else original
    return staticmethod(_timed_often(UNPACK, plain))


def _timed_often(stage: int, plain: Function) -> Function:
    """Time a function as a stage in every batch, at little cost in most of them."""
    now = clocks.now
    timed = clocks.timed(stage, plain)

    @wraps(plain)
    def stage_of(*args: Any, **kwargs: Any) -> Any:
        own = getattr(clocks.local, "clock", None)
        if own is None or clocks.telling:
            clocked = measuring.measuring() and get_worker_info() is None
            return (timed if clocked else plain)(*args, **kwargs)
        outside, own.inside, begun = own.inside, 0, now()
        try:
            return plain(*args, **kwargs)
        finally:
            took = now() - begun
            own.done.append(took - own.inside << 6 | stage)
            own.inside = outside + took

    return stage_of


REPLACED: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("torch.utils.data.DataLoader.__iter__", iterated),
    ("torch.utils.data.dataloader._BaseDataLoaderIter.__next__", asked),
    ("multiprocessing.reduction.ForkingPickler.loads", unpickled),
)
