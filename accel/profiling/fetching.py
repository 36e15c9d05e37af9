"""Clocks of making a batch: in a worker, or in the main process for a loader without workers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch
from torch.utils.data import get_worker_info

from accel.hooks.dataloader import Collating
from accel.hooks.patch import Undo, attribute, found
from accel.processes import switch
from accel.profiling.sampler import sampler
from accel.system import fork, thread_pools
from accel.system.timing import clocks, measuring
from accel.system.timing.clocks import COLLATE, DECODE, IDLE, MADE, READ, RECORD, SEND, TRANSFORM, USER, now

Function = Callable[..., Any]

FIRST = 2  # batches of a worker that include work done only once; they are counted apart
_SOON, _EVERY = 8, 32  # CPU time is measured in the first two batches, after so many, and then in one of so many
_fetched = _images = _batches = _next = 0
_works = False  # whether this worker is making a batch
_ended = 0  # when this worker finished its last batch
_rest = 0
_sent_ns = _sent_before = 0  # the time that the sending thread has taken
_DRAWING = 2  # batches for which it is checked whether they draw random numbers
_EVERY_NS = 100_000_000  # the time after which a worker without a pause writes what it has counted

undo: list[Undo] = []
"""Undoes the replacements made only in worker processes."""


def begin() -> None:
    """Reset everything, as measuring begins in this process."""
    global _fetched, _images, _ended, _batches, _next, _works
    _fetched = _images = _ended = _batches = _next = 0
    _works = False


def begin_batch() -> None:
    """Begin a batch, and choose whether to measure CPU time in it."""
    global _batches, _next
    clocks.sampling_cpu = _batches == _next
    if clocks.sampling_cpu:  # the interval to the next one varies, so as not to coincide with a period in the data
        _next += 1 if _batches < 1 else _SOON if _batches < 2 else _EVERY // 2 + hash((_batches, 1)) % (_EVERY + 1)
    _batches += 1


fork.register(in_child=begin)


def around(name: str, make: Callable[[Any], Any]) -> Undo:
    """Replace an attribute of a module or class, given by its dotted name, by ``make`` of it; return how to undo it."""
    owner, _, attribute_name = name.rpartition(".")
    place = found(owner)
    return attribute(place, attribute_name, make(vars(place).get(attribute_name) or getattr(place, attribute_name)))


def fetch(original: Function) -> Function:
    """Time a fetcher's ``fetch``."""
    of_user, of_accel = clocks.timed(USER, original), clocks.timed(COLLATE, original)

    @wraps(original)
    def measured(self: Any, index: Any) -> Any:
        global _fetched
        if clocks.clock().fetches:  # of a loader inside a dataset, so part of the dataset's work
            return original(self, index)
        in_worker = get_worker_info() is not None
        if in_worker:
            measuring.look()
        if not measuring.measuring():
            return original(self, index)
        clock, row, start = clocks.clock(), measuring.row(), clocks.now()
        if in_worker:
            _begin_in_worker(clock, start)
        state = torch.get_rng_state() if _fetched < _DRAWING else None
        own, hooked = self.collate_fn, switch.in_use()
        if not hooked and not isinstance(own, Collating):
            self.collate_fn = collating(own)
        clock.fetches = True
        try:
            return (of_accel if hooked else of_user)(self, index)
        finally:
            clock.fetches, self.collate_fn = False, own
            _fetched += 1
            if row is not None and state is not None:
                row["draws"] = max(row["draws"], 1 + (not torch.equal(state, torch.get_rng_state())))
            if in_worker:
                if _fetched == FIRST:
                    thread_pools.note()
                _end_in_worker(clock, start, len(index) if self.auto_collation else 1)

    return measured


def _begin_in_worker(clock: clocks.Clock, start: int) -> None:
    global _works
    _works = True
    if not undo:
        undo.extend(around(name, make) for name, make in _OF_WORKERS)
    if _ended:  # it had nothing to do, but for what the sending thread took meanwhile
        clock.add(IDLE, max(start - _ended + _rest - (_sent_ns - _sent_before), 0))
    else:
        if (row := measuring.row()) is not None:
            row["start_ns"] = start
        if not sampler.runs:
            sampler.start()
    clock.inside = clock.cpu_inside = 0
    begin_batch()


def _end_in_worker(clock: clocks.Clock, start: int, images: int) -> None:
    global _images, _ended, _rest, _sent_before, _works
    _images += images
    _ended = clocks.now()
    _rest = _ended - start - clock.inside  # the clocks' own time
    _sent_before = _sent_ns
    if _fetched > FIRST:
        clock.add(MADE, _ended - start)
    _works = False
    if _fetched <= FIRST or now() - measuring.flushed > _EVERY_NS:
        measuring.flush(_ended, _images, first=_fetched <= FIRST)


collating = partial(clocks.timed, COLLATE)
"""Times a collate function within a fetch."""


def load(original: Function) -> Function:
    """Time ``load`` of Pillow's image files, which decodes at the first call, unless accel's decoder calls it."""
    decoding = clocks.timed(DECODE, original)

    def clocked(self: Any) -> Any:
        return (decoding if self.tile and clocks.clock().stage != DECODE else original)(self)

    return clocked


def transform(original: Function) -> Function:
    """Time a stock transform: as recording if a backend is in force, else as transforming."""
    recording, transforming = (clocks.timed(stage, original) for stage in (RECORD, TRANSFORM))

    @wraps(original)
    def clocked(*args: Any, **kwargs: Any) -> Any:
        if clocks.clock().whole:
            return original(*args, **kwargs)
        return (transforming if switch.active() is None else recording)(*args, **kwargs)

    return clocked


def compose(original: Function) -> Function:
    """Time a ``Compose``: as a whole, as recording, if all its transforms are stock and a backend is in force."""
    recording = clocks.timed(RECORD, original)

    @wraps(original)
    def clocked(self: Any, *args: Any, **kwargs: Any) -> Any:
        clock = clocks.clock()
        if clock.whole or not stock.issuperset(map(type, self.transforms)) or switch.active() is None:
            return original(self, *args, **kwargs)
        clock.whole = True
        try:
            return recording(self, *args, **kwargs)
        finally:
            clock.whole = False

    return clocked


stock: set[type] = set()
"""torchvision's transforms that run no code of the user's."""


def open_file(original: Function) -> Function:
    """Time ``PIL.Image.open`` and torchvision's readers, which read if no backend is in force."""
    reading = clocks.timed(READ, original)

    @wraps(original)
    def clocked(*args: Any, **kwargs: Any) -> Any:
        return (reading if switch.active() is None else original)(*args, **kwargs)

    return clocked


def pickle(original: Any) -> Any:
    """Time ``ForkingPickler.dumps`` in a worker's sending thread; its later wait for the main process to read is no
    work."""
    plain = original.__func__
    timed = clocks.timed(SEND, plain)

    @wraps(plain)
    def clocked(*args: Any, **kwargs: Any) -> Any:
        global _sent_ns
        if threading.current_thread().name != "QueueFeederThread":
            return plain(*args, **kwargs)
        start = clocks.now()
        try:
            return timed(*args, **kwargs)
        finally:
            _sent_ns += clocks.now() - start
            if not _works:  # before the batch can be taken, so that all is known when the last one is
                measuring.flush(_ended, _images)

    return classmethod(clocked)


BODIES: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("torchvision.datasets.folder.pil_loader", open_file),
    ("PIL.Image.open", open_file),
    ("PIL.ImageFile.ImageFile.load", load),
)
"""Functions that must stay the same objects: a dataset may hold one, and pickle it by its name."""
_FETCH = "torch.utils.data._utils.fetch"
REPLACED: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    (f"{_FETCH}._MapDatasetFetcher.fetch", fetch),
    (f"{_FETCH}._IterableDatasetFetcher.fetch", fetch),
)
_OF_WORKERS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("multiprocessing.reduction.ForkingPickler.dumps", pickle),
    ("multiprocessing.reduction.ForkingPickler.loads", lambda clocked: staticmethod(clocked.__func__.__wrapped__)),
)
