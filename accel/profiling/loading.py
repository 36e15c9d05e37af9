"""Clocks of the main process: what it waits for a batch, and what it does with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

from torch.utils.data import get_worker_info

from accel.profiling import fetching
from accel.profiling.measured import Batch
from accel.profiling.sampler import sampler
from accel.profiling.watched import Watched
from accel.runtime import streams
from accel.system import clocks, measuring
from accel.system.clocks import STEP, UNPACK, WAIT

Function = Callable[..., Any]


_MANY_DONE = 4096  # stages that have ended, to be added up


watched = Watched()


def begin() -> None:
    """Forget what was before, where this process begins to measure."""
    global watched
    watched = Watched()


ends: list[Callable[[int], object]] = []
"""Called with a loader's number when an epoch of it has ended, in no stage's time."""
listeners: list[Callable[[], object]] = []
"""Called with every batch that is given, in the thread that takes it."""


def iterated(original: Function) -> Function:
    """``DataLoader.__iter__``."""

    @wraps(original)
    def begin(self: Any) -> Any:
        if get_worker_info() is not None or not measuring.measuring():
            return original(self)
        clock = clocks.clock()
        _last.__dict__.pop("batch", None)  # left, or resumed after this epoch: other things were done
        asked = _end_step(clock)
        watched.begun = watched.begun or asked
        if self.num_workers:
            watched.set_aside()
        with sampler.paused(self.num_workers > 0):
            iterator = original(self)
        watched.begin(iterator, self, asked)
        _begin_step(clock, asked)
        return iterator

    return begin


def asked(original: Function) -> Function:
    """``__next__`` of a DataLoader's iterator."""

    @wraps(original)
    def give(self: Any) -> Any:
        if get_worker_info() is not None or not measuring.measuring():
            return original(self)
        clock = clocks.clock()
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
            _last.__dict__.pop("batch", None)
            _begin_step(clock, begun)
            if not isinstance(error, StopIteration):
                watched.failed = f"{type(error).__name__}: {_end_of(str(error))}"
                raise
            watched.over(self)
            for end in ends:
                end(loader.number)
            paused = clocks.now() - clock.stepping
            watched.begun, clock.stepping = watched.begun + paused, clock.stepping + paused  # as if it had not been
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
        _last.batch = batch
        if len(clock.done) > _MANY_DONE:
            measuring.flush()
        for listener in listeners:
            listener()
        _begin_step(clock, begun, cpu)
        return data

    return give


_last = threading.local()
"""The batch that a thread was given last."""


def _end_of(text: str) -> str:
    """The end of an error's text: a worker's is a traceback, whose last lines say what happened."""
    return text if len(text) <= 1000 else f"...{text[-1000:]}"


def _begin_step(clock: clocks.Clock, asked: int, cpu: int | None = None) -> None:
    """The thread has what it asked for, and has waited since; what was done meanwhile are stages of their own."""
    watched.until = clock.stepping = clocks.now()
    waited = clock.stepping - asked - clock.inside
    clock.add(WAIT, waited, max(cpu - clock.cpu_inside, 0) if cpu is not None else None)
    clock.stepping_cpu = clocks.cpu_ns() if clocks.sampling_cpu else None
    clock.inside = clock.cpu_inside = 0
    clock.copied = clock.copies


def _end_step(clock: clocks.Clock) -> int:
    """The thread asks for the next batch: its step with the last one has ended. Now."""
    asked = clocks.now()
    batch: Batch | None = _last.__dict__.pop("batch", None)
    if clock.stepping:
        took, cpu = asked - clock.stepping - clock.inside, None
        if clock.stepping_cpu is not None:
            cpu = max(clocks.cpu_ns() - clock.stepping_cpu - clock.cpu_inside, 0)
        clock.add(STEP, took, cpu)
        if batch is not None:
            batch.copy_ns = clock.copies - clock.copied
            batch.step_ns, batch.step_cpu_ns = took, cpu
    clock.stepping = clock.inside = clock.cpu_inside = 0
    return asked


def _ready(iterator: Any) -> int | None:
    """How many batches wait to be given."""
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


def unpickled(original: Any) -> Any:
    """``ForkingPickler.loads``, in a thread that takes batches."""
    plain = original.__func__ if isinstance(original, staticmethod) else original
    unpacking = clocks.timed(UNPACK, plain)

    def load(*args: Any, **kwargs: Any) -> Any:
        return (plain if get_worker_info() is not None else unpacking)(*args, **kwargs)

    return staticmethod(load)


REPLACED: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("torch.utils.data.DataLoader.__iter__", iterated),
    ("torch.utils.data.dataloader._BaseDataLoaderIter.__next__", asked),
    ("multiprocessing.reduction.ForkingPickler.loads", unpickled),
)
