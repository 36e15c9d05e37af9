"""Clocks of what makes a batch: in a worker, or in the main process for a loader that has none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.utils.data import get_worker_info

from accel import switch
from accel.hooks.dataloader import Collating
from accel.profiling.sampler import sampler
from accel.system import clocks, fork, measuring
from accel.system.clocks import COLLATE, DECODE, FETCH, IDLE, MADE, READ, RECORD, SEND, TRANSFORM, USER
from accel.system.clocks import clock as own_clock
from accel.system.measuring import BEGUN, DRAWS, IMAGES

Function = Callable[..., Any]

_ALL = 8  # so many batches have their stages told apart to begin with, and from then on one in so many
_fetched = 0
_begun = _next = 0
_told = True
_within: int | None = 0
_ended = 0  # when this worker had made its last batch
_rest = 0
_sent_ns = _sent_before = 0  # what the thread that sends has taken
_drawing = 2  # batches of which it is looked at whether random numbers are drawn for them


def begin() -> None:
    """Forget what was before: measuring begins in this process."""
    global _fetched, _ended, _begun, _next
    _fetched = _ended = _begun = _next = 0


def begin_batch() -> None:
    """A batch begins: tell its stages apart, and measure their CPU time, or not."""
    global _begun, _next, _told, _within
    _told = clocks.sampling_cpu = _begun == _next
    if _told:  # what the next one is has no period that could be that of what is loaded
        _next += 1 if _begun < 1 else _ALL if _begun < 2 else _ALL // 2 + hash((_begun, 1)) % (_ALL + 1)
    _told = _told or _begun <= _ALL or clocks.events is not None or clocks.ranges is not None
    # the first ones do for the first time what the others do not
    _within = None if not _told else clocks.TOLD if _begun > 1 else 0
    _begun += 1


fork.register(in_child=begin)


def fetch(original: Function) -> Function:
    """A fetcher's ``fetch``."""
    of_user = located(original)
    of_accel = clocks.timed(COLLATE, original)

    @wraps(original)
    def measured(self: Any, index: Any) -> Any:
        global _fetched, _ended, _rest, _sent_before
        in_worker = get_worker_info() is not None
        if in_worker:
            measuring.look()
        if not measuring.measuring():
            return original(self, index)
        clock, row, begun = clocks.clock(), measuring.row(), clocks.now()
        if in_worker:
            if _ended:  # but for what the thread that sends took meanwhile
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
        if not hooked and not isinstance(own, Collating):
            self.collate_fn = collating(own)
        try:
            return (of_accel if hooked else of_user)(self, index)
        finally:
            if not hooked:
                self.collate_fn = own
            _fetched += 1
            if row is not None:
                row[IMAGES] += len(index) if self.auto_collation else 1
                if state is not None:
                    row[DRAWS] = max(row[DRAWS], 1 + (not torch.equal(state, torch.get_rng_state())))
            if in_worker:
                _ended = clocks.now()
                _rest = _ended - begun - clock.inside  # of what is done for the clocks
                _sent_before = _sent_ns
                clock.add(MADE, _ended - begun)
                measuring.flush(_ended, add_up=clocks.sampling_cpu)

    return measured


def located(original: Function) -> Function:
    """What calls the dataset and the collate function; its stages are told apart, or not."""
    told, whole = clocks.timed(USER, original), clocks.timed(FETCH, original)

    @wraps(original)
    def call(*args: Any) -> Any:
        clock = clocks.clock()
        outside, clock.within = clock.within, _within
        try:
            return (told if _told else whole)(*args)
        finally:
            clock.within = outside

    return call


def collating(original: Function) -> Function:
    """A collate function, whose stages are always told apart."""
    timed = clocks.timed(COLLATE, original)

    @wraps(original)
    def collate(*args: Any) -> Any:
        clock = clocks.clock()
        outside, clock.within = clock.within, 0
        try:
            return timed(*args)
        finally:
            clock.within = outside

    return collate


def loaded(original: Function) -> Function:
    """``load`` of Pillow's image files: it decodes, the first time."""
    decoding = clocks.timed(DECODE, original, of_image=True)

    def load(self: Any) -> Any:
        return decoding(self) if self.tile else original(self)

    return load


def applied(original: Function) -> Function:
    """What a stock transform does: record, where a backend is in force, else transform."""
    recording = clocks.timed(RECORD, original, of_image=True)
    transforming = clocks.timed(TRANSFORM, original, of_image=True)

    @wraps(original)
    def apply(*args: Any, **kwargs: Any) -> Any:
        clock = own_clock()
        if clock.whole or clock.within is None:
            return original(*args, **kwargs)
        return (transforming if switch.active() is None else recording)(*args, **kwargs)

    return apply


def composed(original: Function) -> Function:
    """What a ``Compose`` does. One of stock transforms alone records as a whole."""
    recording = clocks.timed(RECORD, original, of_image=True)

    @wraps(original)
    def compose(self: Any, *args: Any, **kwargs: Any) -> Any:
        clock = own_clock()
        if clock.within is None or clock.whole:
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
"""torchvision's transforms that do nothing of the user's."""


def opened(original: Function) -> Function:
    """``PIL.Image.open`` and readers of torchvision's: they read, where no backend is in force."""
    reading = clocks.timed(READ, original, of_image=True)

    @wraps(original)
    def open(*args: Any, **kwargs: Any) -> Any:
        return (reading if switch.active() is None else original)(*args, **kwargs)

    return open


def pickled(original: Any) -> Any:
    """``ForkingPickler.dumps``, in the thread of a worker that sends its batches."""
    return classmethod(_sent(original.__func__))


def _sent(original: Function) -> Function:
    sending = clocks.timed(SEND, original)

    @wraps(original)
    def send(*args: Any, **kwargs: Any) -> Any:
        global _sent_ns
        if get_worker_info() is None or threading.current_thread().name != "QueueFeederThread":
            return original(*args, **kwargs)
        begun = clocks.now()
        try:
            return sending(*args, **kwargs)
        finally:
            _sent_ns += clocks.now() - begun
            measuring.flush(add_up=False)  # the worker may have ended by the next batch

    return send


BODIES: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("torchvision.datasets.folder.pil_loader", opened),
    ("PIL.Image.open", opened),
    ("PIL.ImageFile.ImageFile.load", loaded),
)
"""Functions that stay the objects they are: a dataset may hold one, and pickle it by its name."""
_FETCH = "torch.utils.data._utils.fetch"
REPLACED: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    (f"{_FETCH}._MapDatasetFetcher.fetch", fetch),
    (f"{_FETCH}._IterableDatasetFetcher.fetch", fetch),
    ("multiprocessing.reduction.ForkingPickler.dumps", pickled),
    ("multiprocessing.connection._ConnectionBase.send_bytes", _sent),
)
