"""Clocks of making a batch: in a worker, or in the main process for a loader without workers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch
from torch.utils.data import get_worker_info

from accel.hooks.dataloader import Collating
from accel.hooks.patch import Undo
from accel.processes import switch
from accel.profiling.around import around
from accel.profiling.sampler import sampler
from accel.system import fork
from accel.system.timing import clocks, measuring
from accel.system.timing.clocks import (
    COLLATE,
    DECODE,
    FETCH,
    IDLE,
    MADE,
    READ,
    RECORD,
    SEND,
    TRANSFORM,
    USER,
)
from accel.system.timing.clocks import clock as own_clock
from accel.system.timing.row_words import BEGUN, DRAWS, IMAGES

Function = Callable[..., Any]

FIRST = 2  # batches of a worker that include work done only once; they are counted apart
_ALL, _EVERY = 8, 32  # stages are told apart in about so many batches at first, then in one of so many
_fetched = _images = 0
_begun = _next = 0
_works = False  # whether this is a worker that has begun to make batches
_generation = 0  # the generation of measuring in which it began
_ended = 0  # when this worker finished its last batch
_rest = 0
_sent_ns = _sent_before = 0  # the time that the sending thread has taken
_sends: dict[int, bool] = {}  # by thread: whether it sends batches
_drawing = 2  # batches for which it is checked whether they draw random numbers

undo: list[Undo] = []
"""Undoes the replacements made only in worker processes."""


def begin() -> None:
    """Reset everything, as measuring begins in this process."""
    global _fetched, _images, _ended, _begun, _next, _works
    _fetched = _images = _ended = _begun = _next = 0
    _works = False
    _sends.clear()


def begin_batch() -> None:
    """Begin a batch, and choose whether to tell its stages apart and measure their CPU time."""
    global _begun, _next
    clocks.sampling_cpu = _begun == _next
    if clocks.sampling_cpu:  # the interval to the next one varies, so as not to coincide with a period in the data
        _next += 1 if _begun < 1 else _ALL if _begun < 2 else _EVERY // 2 + hash((_begun, 1)) % (_EVERY + 1)
    clocks.tell(clocks.sampling_cpu or _begun <= _ALL or clocks.events is not None or clocks.ranges is not None)
    clocks.mark = clocks.TOLD if _begun > 1 else 0  # the first ones include work done only once
    _begun += 1


def untold() -> int:
    """The number of following batches whose stages are not told apart."""
    return 0 if clocks.telling or _begun <= _ALL else _next - _begun


def skip(batches: int) -> None:
    """Count batches as begun."""
    global _begun
    _begun += batches


fork.register(in_child=begin)


def fetch(original: Function) -> Function:
    """Time a fetcher's ``fetch``, which is a section; for most batches as little as possible is recorded."""
    of_user, of_accel = clocks.section(USER, original), clocks.section(COLLATE, original)
    now = clocks.now

    @wraps(original)
    def measured(self: Any, index: Any) -> Any:
        global _begun, _images, _ended, _rest, _sent_before
        own = getattr(clocks.local, "clock", None)
        if own is not None and own.section:  # of a loader inside a dataset, so part of the dataset's work
            return original(self, index)
        if own is None or clocks.telling:
            return noted(self, index)
        if not _works:
            outside, own.inside, own.section, begun = own.inside, 0, True, now()
            try:
                return original(self, index)
            finally:
                took = now() - begun
                own.done.append(took - own.inside << 6 | FETCH)
                own.inside, own.section = outside + took, False
        if _begun == _next or measuring.control[0] != _generation:
            return noted(self, index)
        _begun += 1
        begun = now()
        idle = max(begun - _ended + _rest - (_sent_ns - _sent_before), 0)
        own.inside, own.section = 0, True
        try:
            return original(self, index)
        finally:
            own.section = False
            _ended, _rest, _sent_before = now(), 0, _sent_ns
            _images += len(index) if self.auto_collation else 1
            ring, took = measuring.rings[0], _ended - begun
            entries = idle << 6 | IDLE, took - own.inside << 6 | FETCH, took << 6 | MADE
            if not ring.put(*entries, until=_ended, images=_images):
                measuring.flush(_ended, own=ring)

    def noted(self: Any, index: Any) -> Any:
        global _fetched, _images, _ended, _rest, _sent_before
        in_worker = get_worker_info() is not None
        if in_worker:
            measuring.look()
        if not measuring.measuring():
            return original(self, index)
        clock, row, begun = clocks.clock(), measuring.row(), clocks.now()
        if in_worker:
            if not _works:
                _begin_work()
            if _ended:  # without the time that the sending thread took meanwhile
                clock.add(IDLE, max(begun - _ended + _rest - (_sent_ns - _sent_before), 0))
            else:
                if row is not None:
                    row[BEGUN] = begun
                if not sampler.runs:
                    sampler.start()
            clock.inside = clock.cpu_inside = 0
            begin_batch()
        state = torch.get_rng_state() if _fetched < _drawing else None
        own = self.collate_fn
        hooked = switch.in_use()
        replaces = clocks.telling and not hooked and not isinstance(own, Collating)
        if replaces:
            self.collate_fn = collating(own)
        try:
            return (of_accel if hooked else of_user)(self, index)
        finally:
            if replaces:
                self.collate_fn = own
            _fetched += 1
            if row is not None and state is not None:
                row[DRAWS] = max(row[DRAWS], 1 + (not torch.equal(state, torch.get_rng_state())))
            if in_worker:
                _images += len(index) if self.auto_collation else 1
                _ended = clocks.now()
                _rest = _ended - begun - clock.inside  # the clocks' own time
                _sent_before = _sent_ns
                if _fetched > FIRST:
                    clock.add(MADE, _ended - begun)
                if row is not None:
                    row[IMAGES] = _images
                    measuring.flush(_ended, first=_fetched <= FIRST, own=measuring.rings[0])

    return measured


def _begin_work() -> None:
    global _works, _generation
    _works, _generation = measuring.row() is not None, measuring.control[0]
    if not undo:
        undo.extend(around(name, make) for name, make in _OF_WORKERS)


collating = partial(clocks.timed, COLLATE, of_image=True)
"""Times a collate function within a fetch."""


def loaded(original: Function) -> Function:
    """Time ``load`` of Pillow's image files, which decodes at the first call."""
    decoding = clocks.timed(DECODE, original, of_image=True)

    def load(self: Any) -> Any:
        return decoding(self) if clocks.telling and self.tile else original(self)

    return load


def applied(original: Function) -> Function:
    """Time a stock transform: as recording if a backend is in force, else as transforming."""
    recording = clocks.timed(RECORD, original, of_image=True)
    transforming = clocks.timed(TRANSFORM, original, of_image=True)

    @wraps(original)
    def apply(*args: Any, **kwargs: Any) -> Any:
        if not clocks.telling or own_clock().whole:
            return original(*args, **kwargs)
        return (transforming if switch.active() is None else recording)(*args, **kwargs)

    return apply


def composed(original: Function) -> Function:
    """Time a ``Compose``: as a whole, as recording, if all its transforms are stock and a backend is in force."""
    recording = clocks.timed(RECORD, original, of_image=True)

    @wraps(original)
    def compose(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not clocks.telling:
            return original(self, *args, **kwargs)
        clock = own_clock()
        if clock.whole:
            return original(self, *args, **kwargs)
        if not stock.issuperset(map(type, self.transforms)) or switch.active() is None:
            return original(self, *args, **kwargs)
        clock.whole = True
        try:
            return recording(self, *args, **kwargs)
        finally:
            clock.whole = False

    return compose


stock: set[type] = set()
"""torchvision's transforms that run no code of the user's."""


def opened(original: Function) -> Function:
    """Time ``PIL.Image.open`` and torchvision's readers, which read if no backend is in force."""
    reading = clocks.timed(READ, original, of_image=True)

    @wraps(original)
    def open(*args: Any, **kwargs: Any) -> Any:
        return (reading if clocks.telling and switch.active() is None else original)(*args, **kwargs)

    return open


def pickled(original: Any) -> Any:
    """Time ``ForkingPickler.dumps`` in a worker's sending thread; its later wait for the main process to read is no
    work."""
    told, plain, now = clocks.timed(SEND, original.__func__), original.__func__, clocks.now

    @wraps(plain)
    def dumps(*args: Any, **kwargs: Any) -> Any:
        global _sent_ns
        if not _is_sender():
            return plain(*args, **kwargs)
        own, ring, begun = clocks.clock(), measuring.rings[1], now()
        traced, own.inside = clocks.events is not None or clocks.ranges is not None, 0
        cpu_begun = clocks.cpu_ns() if clocks.sampling_cpu and not traced else None
        try:
            return (told if traced else plain)(*args, **kwargs)
        finally:  # before the batch can be taken, so that its time is known then
            took = now() - begun
            _sent_ns += took
            ns = took - own.inside
            if cpu_begun is not None:
                own.cpu.append((SEND, ns, clocks.cpu_ns() - cpu_begun))
            if traced or not ring.put(ns << 6 | SEND):
                measuring.flush(_ended, own=ring)

    return classmethod(dumps)


def _is_sender() -> bool:
    """Whether this thread is a worker's sending thread, which may still send when the last batch is made."""
    found = _sends.get(threading.get_ident())
    if found is None:
        found = _sends[threading.get_ident()] = threading.current_thread().name == "QueueFeederThread"
    return found


BODIES: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("torchvision.datasets.folder.pil_loader", opened),
    ("PIL.Image.open", opened),
    ("PIL.ImageFile.ImageFile.load", loaded),
)
"""Functions that must stay the same objects: a dataset may hold one, and pickle it by its name."""
_FETCH = "torch.utils.data._utils.fetch"
REPLACED: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    (f"{_FETCH}._MapDatasetFetcher.fetch", fetch),
    (f"{_FETCH}._IterableDatasetFetcher.fetch", fetch),
)
_OF_WORKERS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("multiprocessing.reduction.ForkingPickler.dumps", pickled),
    ("multiprocessing.reduction.ForkingPickler.loads", lambda clocked: staticmethod(clocked.__func__.__wrapped__)),
)
