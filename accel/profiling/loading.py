"""Clocks of the main process: what it waits for a batch, and what it does with it."""

from __future__ import annotations

import os
import threading
from collections import Counter, deque
from collections.abc import Callable
from functools import wraps
from multiprocessing import active_children
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.data import DataLoader, get_worker_info

from accel import switch
from accel.options import Selection
from accel.profiling import fetching, trial
from accel.profiling.extent import extent
from accel.profiling.measured import Batch, Loader, Trial
from accel.profiling.sampler import sampler
from accel.runtime import streams
from accel.system import clocks, measuring
from accel.system.clocks import STEP, UNPACK, WAIT
from accel.system.private_names import private

Function = Callable[..., Any]
private("torch", "_C.DisableTorchFunctionSubclass")

_MOST_BATCHES = 4096
_MANY = 256  # rows of workers that have ended
_MANY_DONE = 4096  # stages that have ended, to be added up


class Watched:
    """What is known of the loaders while this process measures."""

    def __init__(self) -> None:
        self.loaders: list[Loader] = []
        self.batches: deque[Batch] = deque(maxlen=_MOST_BATCHES)
        self.workers: dict[int, tuple[int, int]] = {}
        """By their process: the loader's number, and the worker's."""
        self.samples: dict[int, trial.Samples | None] = {}
        self.trials: dict[int, Trial | None] = {}
        self.failed: str | None = None
        self.selection: Selection | None = None
        """The backend in force when an epoch began: a script may leave it before measuring ends."""
        self.begun = self.until = 0
        self.images = 0
        self._ended: list[measuring.Row] = []
        self._begun: Counter[int] = Counter()
        self._numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._extents: dict[tuple[int, ...] | None, tuple[int, int | None]] = {}
        self._epochs: WeakKeyDictionary[Any, tuple[Loader, int, int]] = WeakKeyDictionary()

    def begin(self, iterator: Any, loader: Any, asked: int) -> None:
        """An epoch of a loader begins with this iterator, which somebody asked for at a time; 0: before measuring."""
        self.selection = switch.current()
        number = self._numbers.setdefault(loader, len(self.loaders))
        if number == len(self.loaders):
            self.loaders.append(_described(number, loader, iterator))
            self.samples[number] = trial.samples(loader) if isinstance(loader, DataLoader) else None
        described = self.loaders[number]
        self._epochs[iterator] = described, self._begun[number], asked
        self._begun[number] += 1
        self._learn_workers(number, iterator)

    def _learn_workers(self, number: int, iterator: Any) -> None:
        for worker, process in enumerate(getattr(iterator, "_workers", ())):
            self.workers[process.pid] = number, worker

    def epoch(self, iterator: Any) -> tuple[Loader, int, int]:
        """The loader of an iterator, the epoch, and when it began."""
        found = self._epochs.get(iterator)
        if found is None:  # begun before it was measured
            self.begin(iterator, iterator, 0)
            found = self._epochs[iterator]
        return found

    def set_aside(self) -> None:
        """Keep what workers have measured that have ended, for others may take their rows."""
        alive = {os.getpid(), *(process.pid for process in active_children())}
        self._ended += measuring.take(lambda pid: pid not in alive)
        if len(self._ended) > _MANY:
            self._ended = self.grouped([])

    def grouped(self, rows: list[measuring.Row]) -> list[measuring.Row]:
        """Rows, with those of workers that took the place of each other, epoch after epoch, as one."""
        places: dict[Any, list[measuring.Row]] = {}
        for row in (*rows[:1], *self._ended, *rows[1:]):
            pid = row.header["pid"]
            places.setdefault(self.workers.get(pid, pid), []).append(row)
        return [measuring.together(each) for each in places.values()]

    def extent(self, data: Any, loader: Loader, collated: bool) -> tuple[int, int | None]:
        """The images and bytes of a batch; where its stages are not told apart, those of one before that is like it."""
        try:
            with torch._C.DisableTorchFunctionSubclass():  # it costs more than the rest
                first = data[0] if type(data) in (list, tuple) else None
                like = (loader.number, *first.shape[:1]) if isinstance(first, torch.Tensor) else None
                if clocks.telling or like not in self._extents:
                    found = extent(data, loader.batch_size, collated)
                    if like is None:
                        return found
                    self._extents[like] = found
                return self._extents[like]
        except Exception:  # somebody's own class
            return loader.batch_size or 1, None

    def started(self, iterator: Any) -> None:
        """Its first batch is there."""
        loader, epoch, asked = self._epochs[iterator]
        if asked:
            loader.startup_ns.append(clocks.now() - asked)
            self._epochs[iterator] = loader, epoch, 0

    def ended(self, iterator: Any, took: int) -> None:
        if iterator in self._epochs:
            self._epochs[iterator][0].ended_ns.append(took)


watched = Watched()


def begin() -> None:
    """Forget what was before, where this process begins to measure."""
    global watched
    watched = Watched()


ends: list[Callable[[int], object]] = []
"""Called with a loader's number when an epoch of it has ended, in no stage's time."""
listeners: list[Callable[[], object]] = []
"""Called with every batch that is given, in the thread that takes it."""


def _described(number: int, loader: Any, iterator: Any) -> Loader:
    """What a loader is, by itself or (where it was not seen to begin) by its iterator."""
    is_loader = isinstance(loader, DataLoader)
    dataset = loader.dataset if is_loader else loader._dataset
    workers = iterator._num_workers
    context = loader.multiprocessing_context if is_loader else None
    method = "none"
    if workers:
        method = getattr(context, "get_start_method", torch.multiprocessing.get_start_method)()
    try:
        length = len(iterator)
    except Exception:  # somebody's own, that torch does not ask
        length = None
    return Loader(
        number=number,
        batch_size=getattr(iterator._index_sampler, "batch_size", None),
        num_workers=workers,
        prefetch_factor=getattr(iterator, "_prefetch_factor", None),
        pin_memory=bool(iterator._pin_memory),
        persistent=bool(getattr(iterator, "_persistent_workers", False)),
        method=method,
        dataset=dataset_name(dataset),
        length=length,
        pid=os.getpid(),
    )


def kind(loader: Loader) -> tuple[str, int | None, int]:
    """What loaders have in common that do the same work."""
    return loader.dataset, loader.batch_size, loader.num_workers


def dataset_name(dataset: Any) -> str:
    """What a loader's dataset is called."""
    return f"{type(dataset).__module__}.{type(dataset).__qualname__}"


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
        cpu_begun = clocks.cpu_ns() if clocks.sampling_cpu else None
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
        batch = Batch(loader.number, epoch, number, images, begun, taken - begun, bytes=size, ready=ready, dry=dry)
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
