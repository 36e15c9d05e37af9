"""What is known of the loaders of this process while it measures."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import active_children
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, ref

import numpy as np
import torch
from torch.utils.data import DataLoader

from accel import switch
from accel.options import Selection
from accel.profiling import trial
from accel.profiling.extent import extent
from accel.profiling.measured import Batch, Loader, Trial
from accel.system import clocks, measuring, row_words
from accel.system.private_names import private

private("torch", "_C.DisableTorchFunctionSubclass")

_MOST_BATCHES = 4096
_MANY = 256  # rows of workers that have ended


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
        self.unfinished = 0
        """What stages took in a step that an error has ended, or that goes on."""
        self.images = 0
        self.uneven: set[int] = set()
        """Loaders whose batches are not all as large: a collate function may drop samples."""
        self._ended: list[measuring.Row] = []
        self._begun: Counter[int] = Counter()
        self._known: list[tuple[Any, Any, Loader]] = []
        """Weakly each loader and its dataset, and what it is."""
        self._over: WeakSet[Any] = WeakSet()
        """Iterators that have given their last batch."""
        self._extents: dict[tuple[int, ...] | None, tuple[int, int | None]] = {}
        self._epochs: WeakKeyDictionary[Any, tuple[Loader, int, int]] = WeakKeyDictionary()

    @property
    def seconds(self) -> float:
        return (self.until - self.begun + self.unfinished) / 1e9

    def begin(self, iterator: Any, loader: Any, asked: int) -> None:
        """An epoch of a loader begins with this iterator, which somebody asked for at a time; 0: before measuring."""
        self.selection = switch.current()
        described = self._described(loader, iterator)
        number = described.number
        self._epochs[iterator] = described, self._begun[number], asked
        self._over.discard(iterator)
        self._begun[number] += 1
        self._learn_workers(number, iterator)

    def _described(self, loader: Any, iterator: Any) -> Loader:
        """What a loader is; one that takes the place of another, for the next epoch, is that."""
        for known, _, described in self._known:
            if known() is loader:
                return described
        made = _described(len(self.loaders), loader, iterator)
        dataset = _weakly(loader.dataset if isinstance(loader, DataLoader) else iterator._dataset)
        under_way = {its.number for iterator, (its, _, _) in self._epochs.items() if iterator not in self._over}
        for place, (_, same, described) in enumerate(self._known):
            alike = replace(made, **{name: getattr(described, name) for name in _OF_MEASURING}) == described
            if alike and same() is not None and same() is dataset() and described.number not in under_way:
                described.renewed = True
                self._known[place] = _weakly(loader), dataset, described
                return described
        self.loaders.append(made)
        self._known.append((_weakly(loader), dataset, made))
        self.samples[made.number] = trial.samples(loader) if isinstance(loader, DataLoader) else None
        return made

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
        return [together(each) for each in places.values()]

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

    def over(self, iterator: Any) -> None:
        """It has given its last batch."""
        self._over.add(iterator)

    def ended(self, iterator: Any, took: int) -> None:
        if iterator in self._epochs:
            self._epochs[iterator][0].ended_ns.append(took)


def together(rows: list[measuring.Row]) -> measuring.Row:
    """What processes measured that took each other's place, as one."""
    header = dict(rows[-1].header)
    for name in ("ns", "cpu_ns", "delayed_ns", "images", *row_words.HEADER[row_words.BEFORE :]):
        header[name] = sum(row.header[name] for row in rows)
    for name in ("threads", "draws"):
        header[name] = max(row.header[name] for row in rows)
    texts: Counter[str] = Counter()
    for row in rows:
        texts.update(dict(row.texts))
    return measuring.Row(header, np.sum([row.stages for row in rows], axis=0), texts.most_common())


_OF_MEASURING = ("number", "startup_ns", "ended_ns", "renewed", "draws")
"""What of a ``Loader`` is no setting."""


def _weakly(thing: Any) -> Callable[[], Any]:
    """A reference that keeps nothing alive; to nothing, where there can be none."""
    try:
        return ref(thing)
    except TypeError:
        return lambda: None


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
