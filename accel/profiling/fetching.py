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
from accel.system.timing.clocks import COLLATE, DECODE, FETCH, IDLE, MADE, READ, RECORD, SEND, TRANSFORM, USER
from accel.system.timing.clocks import clock as own_clock
from accel.system.timing.row_words import DRAWS, IMAGES, START

Function = Callable[..., Any]

FIRST = 2  # batches of a worker that include work done only once; they are counted apart
_ALL, _EVERY = 8, 32  # stages are timed one by one in about so many batches at first, then in one of so many
_fetched = _images = 0
_batches = _next = 0
_works = False  # whether this is a worker that has begun to make batches
_generation = 0  # the generation of measuring in which it began
_ended = 0  # when this worker finished its last batch
_rest = 0
_sent_ns = _sent_before = 0  # the time that the sending thread has taken
_sends: dict[int, bool] = {}  # by thread: whether it sends batches
_DRAWING = 2  # batches for which it is checked whether they draw random numbers

undo: list[Undo] = []
"""Undoes the replacements made only in worker processes."""


def begin() -> None:
    """Reset everything, as measuring begins in this process."""
    global _fetched, _images, _ended, _batches, _next, _works
    _fetched = _images = _ended = _batches = _next = 0
    _works = False
    _sends.clear()


def begin_batch() -> None:
    """Begin a batch, and choose whether to time its stages one by one, with their CPU time."""
    global _batches, _next
    clocks.sampling_cpu = _batches == _next
    if clocks.sampling_cpu:  # the interval to the next one varies, so as not to coincide with a period in the data
        _next += 1 if _batches < 1 else _ALL if _batches < 2 else _EVERY // 2 + hash((_batches, 1)) % (_EVERY + 1)
    traces = clocks.events is not None or clocks.ranges is not None
    clocks.detailed = clocks.sampling_cpu or _batches <= _ALL or traces
    clocks.mark = clocks.DETAILED if _batches > 1 else 0  # the first ones include work done only once
    _batches += 1


def until_detailed() -> int:
    """The number of batches before the next one whose stages are timed one by one."""
    return 0 if clocks.detailed or _batches <= _ALL else _next - _batches


def skip(batches: int) -> None:
    """Count batches that were recorded in short."""
    global _batches
    _batches += batches


fork.register(in_child=begin)


def around(name: str, make: Callable[[Any], Any]) -> Undo:
    """Replace an attribute of a module or class, given by its dotted name, by ``make`` of it; return how to undo it."""
    owner, _, attribute_name = name.rpartition(".")
    place = found(owner)
    return attribute(place, attribute_name, make(vars(place).get(attribute_name) or getattr(place, attribute_name)))


def fetch(original: Function) -> Function:
    """Time a fetcher's ``fetch``, which is a section; for most batches as little as possible is recorded."""
    timed = partial(_fetch_in_full, original, clocks.section(USER, original), clocks.section(COLLATE, original))

    @wraps(original)
    def measured(self: Any, index: Any) -> Any:
        own = getattr(clocks.local, "clock", None)
        if own is not None and own.section:  # of a loader inside a dataset, so part of the dataset's work
            return original(self, index)
        if own is None or clocks.detailed:
            return timed(self, index)
        if not _works:
            return _fetch_in_main(original, own, self, index)
        if _batches == _next or measuring.control[0] != _generation:
            return timed(self, index)
        return _fetch_in_worker(original, own, self, index)

    return measured


def _fetch_in_main(original: Function, own: clocks.Clock, fetcher: Any, index: Any) -> Any:
    outside, own.inside, own.section, start = own.inside, 0, True, clocks.now()
    try:
        return original(fetcher, index)
    finally:
        took = clocks.now() - start
        own.done.append(took - own.inside << 6 | FETCH)
        own.inside, own.section = outside + took, False


def _fetch_in_worker(original: Function, own: clocks.Clock, fetcher: Any, index: Any) -> Any:
    global _batches, _images, _ended, _rest, _sent_before
    _batches += 1
    start = clocks.now()
    idle = _idle_until(start)
    own.inside, own.section = 0, True
    try:
        return original(fetcher, index)
    finally:
        own.section = False
        _ended, _rest, _sent_before = clocks.now(), 0, _sent_ns
        _images += len(index) if fetcher.auto_collation else 1
        ring, took = measuring.rings[0], _ended - start
        entries = idle << 6 | IDLE, took - own.inside << 6 | FETCH, took << 6 | MADE
        if not ring.put(*entries, until=_ended, images=_images):
            measuring.flush(_ended, own=ring)


def _fetch_in_full(original: Function, of_user: Function, of_accel: Function, fetcher: Any, index: Any) -> Any:
    global _fetched
    in_worker = get_worker_info() is not None
    if in_worker:
        measuring.look()
    if not measuring.measuring():
        return original(fetcher, index)
    clock, row, start = clocks.clock(), measuring.row(), clocks.now()
    if in_worker:
        _begin_in_worker(clock, row, start)
    state = torch.get_rng_state() if _fetched < _DRAWING else None
    own = fetcher.collate_fn
    hooked = switch.in_use()
    replaces = clocks.detailed and not hooked and not isinstance(own, Collating)
    if replaces:
        fetcher.collate_fn = collating(own)
    try:
        return (of_accel if hooked else of_user)(fetcher, index)
    finally:
        if replaces:
            fetcher.collate_fn = own
        _fetched += 1
        if row is not None and state is not None:
            row[DRAWS] = max(row[DRAWS], 1 + (not torch.equal(state, torch.get_rng_state())))
        if in_worker:
            if _fetched == FIRST:
                thread_pools.note()
            _end_in_worker(clock, row, start, len(index) if fetcher.auto_collation else 1)


def _idle_until(start: int) -> int:
    """How long a worker had nothing to do, without the time that the sending thread took meanwhile."""
    return max(start - _ended + _rest - (_sent_ns - _sent_before), 0)


def _begin_in_worker(clock: clocks.Clock, row: Any, start: int) -> None:
    global _works, _generation
    if not _works:
        _works, _generation = measuring.row() is not None, measuring.control[0]
        if not undo:
            undo.extend(around(name, make) for name, make in _OF_WORKERS)
    if _ended:
        clock.add(IDLE, _idle_until(start))
    else:
        if row is not None:
            row[START] = start
        if not sampler.runs:
            sampler.start()
    clock.inside = clock.cpu_inside = 0
    begin_batch()


def _end_in_worker(clock: clocks.Clock, row: Any, start: int, images: int) -> None:
    global _images, _ended, _rest, _sent_before
    _images += images
    _ended = clocks.now()
    _rest = _ended - start - clock.inside  # the clocks' own time
    _sent_before = _sent_ns
    if _fetched > FIRST:
        clock.add(MADE, _ended - start)
    if row is not None:
        row[IMAGES] = _images
        measuring.flush(_ended, first=_fetched <= FIRST, own=measuring.rings[0])


collating = partial(clocks.timed, COLLATE, of_image=True)
"""Times a collate function within a fetch."""


def load(original: Function) -> Function:
    """Time ``load`` of Pillow's image files, which decodes at the first call."""
    decoding = clocks.timed(DECODE, original, of_image=True)

    def clocked(self: Any) -> Any:
        return decoding(self) if self.tile else original(self)

    return clocked


def transform(original: Function) -> Function:
    """Time a stock transform: as recording if a backend is in force, else as transforming."""
    recording = clocks.timed(RECORD, original, of_image=True)
    transforming = clocks.timed(TRANSFORM, original, of_image=True)

    @wraps(original)
    def clocked(*args: Any, **kwargs: Any) -> Any:
        if not clocks.detailed or own_clock().whole:
            return original(*args, **kwargs)
        return (transforming if switch.active() is None else recording)(*args, **kwargs)

    return clocked


def compose(original: Function) -> Function:
    """Time a ``Compose``: as a whole, as recording, if all its transforms are stock and a backend is in force."""
    recording = clocks.timed(RECORD, original, of_image=True)

    @wraps(original)
    def clocked(self: Any, *args: Any, **kwargs: Any) -> Any:
        clock = own_clock() if clocks.detailed else None
        if clock is None or clock.whole or not stock.issuperset(map(type, self.transforms)) or switch.active() is None:
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
    reading = clocks.timed(READ, original, of_image=True)

    @wraps(original)
    def clocked(*args: Any, **kwargs: Any) -> Any:
        return (reading if switch.active() is None else original)(*args, **kwargs)

    return clocked


def pickle(original: Any) -> Any:
    """Time ``ForkingPickler.dumps`` in a worker's sending thread; its later wait for the main process to read is no
    work."""
    plain, now = original.__func__, clocks.now
    timed = clocks.timed(SEND, plain)

    @wraps(plain)
    def clocked(*args: Any, **kwargs: Any) -> Any:
        global _sent_ns
        if not _is_sender():
            return plain(*args, **kwargs)
        own, ring, start = clocks.clock(), measuring.rings[1], now()
        traced, own.inside = clocks.events is not None or clocks.ranges is not None, 0
        cpu_start = clocks.cpu_ns() if clocks.sampling_cpu and not traced else None
        try:
            return (timed if traced else plain)(*args, **kwargs)
        finally:  # before the batch can be taken, so that its time is known then
            took = now() - start
            _sent_ns += took
            ns = took - own.inside
            if cpu_start is not None:
                own.cpu.append((SEND, ns, clocks.cpu_ns() - cpu_start))
            if traced or not ring.put(ns << 6 | SEND):
                measuring.flush(_ended, own=ring)

    return classmethod(clocked)


def _is_sender() -> bool:
    """Whether this thread is a worker's sending thread, which may still send when the last batch is made."""
    found = _sends.get(threading.get_ident())
    if found is None:
        found = _sends[threading.get_ident()] = threading.current_thread().name == "QueueFeederThread"
    return found


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
