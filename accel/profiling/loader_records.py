"""The loaders of this process, and their batches, while it measures."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from multiprocessing import active_children
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, ref

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence
from torch.utils.data import DataLoader

from accel.processes import switch
from accel.profiling import trial
from accel.profiling.measured import BatchTimes, Loader, Trial
from accel.recipes.options import Selection
from accel.system.private_names import private
from accel.system.timing import clocks, measuring

private("torch", "_C.DisableTorchFunctionSubclass")

_MOST_BATCHES = 4096
_MANY = 256  # rows of workers that have ended


class LoaderRecords:
    """The state of measuring this process's loaders."""

    def __init__(self) -> None:
        self.loaders: list[Loader] = []
        self.batches: deque[BatchTimes] = deque(maxlen=_MOST_BATCHES)
        self.workers: dict[int, tuple[int, int]] = {}
        """By the workers' process ids: the loader's number, and the worker's."""
        self.samples: dict[int, trial.Samples | None] = {}
        self.trials: dict[int, Trial | None] = {}
        self.failed: str | None = None
        self.selection: Selection | None = None
        """The backend in force when an epoch began: a script may leave it before measuring ends."""
        self.start = self.until = 0
        self.unfinished = 0
        """The time of stages in a step that an error has ended, or that goes on."""
        self.images = 0
        self._ended: list[measuring.ProcessRow] = []
        self._epoch_counts: Counter[int] = Counter()
        self._known: list[tuple[Any, Any, Loader]] = []
        """Weak references to each loader and its dataset, and the loader's description."""
        self.exhausted: WeakSet[Any] = WeakSet()
        """Iterators that have returned their last batch."""
        self._epochs: WeakKeyDictionary[Any, tuple[Loader, int, int]] = WeakKeyDictionary()

    @property
    def seconds(self) -> float:
        return (self.until - self.start + self.unfinished) / 1e9

    def begin(self, iterator: Any, loader: Any, since: int) -> None:
        """Begin an epoch of a loader with this iterator; ``since``: when it was requested, 0 if before measuring."""
        self.selection = switch.current()
        described = self._described(loader, iterator)
        number = described.number
        self._epochs[iterator] = described, self._epoch_counts[number], since
        self.exhausted.discard(iterator)
        self._epoch_counts[number] += 1
        for worker, process in enumerate(getattr(iterator, "_workers", ())):
            self.workers[process.pid] = number, worker

    def _described(self, loader: Any, iterator: Any) -> Loader:
        """The description of a loader; one that replaces another for the next epoch has the other's."""
        for known, _, described in self._known:
            if known() is loader:
                return described
        made = _described(len(self.loaders), loader, iterator)
        dataset = _weakly(loader.dataset if isinstance(loader, DataLoader) else iterator._dataset)
        under_way = {its.number for iterator, (its, _, _) in self._epochs.items() if iterator not in self.exhausted}
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

    def epoch(self, iterator: Any) -> tuple[Loader, int, int]:
        """The loader of an iterator, the epoch's number, and when it was requested."""
        found = self._epochs.get(iterator)
        if found is None:  # begun before it was measured
            self.begin(iterator, iterator, 0)
            found = self._epochs[iterator]
        return found

    def set_aside(self) -> None:
        """Keep the measurements of workers that have ended, as others may reuse their rows."""
        alive = {os.getpid(), *(process.pid for process in active_children())}
        self._ended += measuring.take(lambda pid: pid not in alive)
        if len(self._ended) > _MANY:
            self._ended = self.grouped([])

    def grouped(self, rows: list[measuring.ProcessRow]) -> list[measuring.ProcessRow]:
        """Merge the rows of workers that replaced each other, epoch after epoch."""
        places: dict[Any, list[measuring.ProcessRow]] = {}
        for row in (*rows[:1], *self._ended, *rows[1:]):
            pid = row.header["pid"]
            places.setdefault(self.workers.get(pid, pid), []).append(row)
        return [together(each) for each in places.values()]

    def started(self, iterator: Any) -> None:
        """Record the time to an iterator's first batch."""
        loader, epoch, since = self._epochs[iterator]
        if since:
            loader.startup_ns.append(clocks.now() - since)
            self._epochs[iterator] = loader, epoch, 0

    def ended(self, iterator: Any, took: int) -> None:
        if iterator in self._epochs:
            self._epochs[iterator][0].ended_ns.append(took)


def together(rows: list[measuring.ProcessRow]) -> measuring.ProcessRow:
    """Merge the rows of processes that replaced each other."""
    header = dict(rows[-1].header)
    for name in measuring.SUMS:
        header[name] = sum(row.header[name] for row in rows)
    for name in ("threads", "draws"):
        header[name] = max(row.header[name] for row in rows)
    texts: Counter[str] = Counter()
    for row in rows:
        texts.update(dict(row.texts))
    return measuring.ProcessRow(header, np.sum([row.stages for row in rows], axis=0), texts.most_common())


_OF_MEASURING = ("number", "startup_ns", "ended_ns", "renewed", "draws")
"""The fields of ``Loader`` that are no settings."""


def _weakly(thing: Any) -> Callable[[], Any]:
    """A weak reference; one to None if the object allows none."""
    try:
        return ref(thing)
    except TypeError:
        return lambda: None


def _described(number: int, loader: Any, iterator: Any) -> Loader:
    """Describe a loader, given itself or, if its ``iter()`` was not seen, only its iterator."""
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
    """The settings that two loaders share if they do the same work."""
    return loader.dataset, loader.batch_size, loader.num_workers


def dataset_name(dataset: Any) -> str:
    """The name of a dataset: its class, with the module."""
    return f"{type(dataset).__module__}.{type(dataset).__qualname__}"


def extent(data: Any, batch_size: int | None, collated: bool) -> tuple[int, int | None]:
    """The number of images in a batch of any structure, and the bytes of its tensors; None if it has no tensors."""
    try:
        with torch._C.DisableTorchFunctionSubclass():  # it costs more than the rest
            return _extent(data, batch_size, collated)
    except Exception:  # somebody's own class
        return batch_size or 1, None


def _extent(data: Any, batch_size: int | None, collated: bool) -> tuple[int, int | None]:
    tensors: list[torch.Tensor] = []
    ahead, images = [data], None
    while ahead and len(tensors) < 64:
        each = ahead.pop(0)
        found, number, parts = _content(each)
        tensors += found
        ahead += parts
        if images is None and not (parts and each is data):
            images = number
    if images is None:
        least = 1 if collated else 4  # without a batch dimension an image has up to three
        images = tensors[0].shape[0] if tensors and tensors[0].ndim >= least else batch_size or 1
    size = sum(each.numel() * each.dtype.itemsize for each in tensors) if tensors else None
    return images, size


def _content(part: Any) -> tuple[list[torch.Tensor], int | None, list[Any]]:
    """What a part of a batch consists of: tensors, or further parts, and as how many images these come."""
    if isinstance(part, PackedSequence):
        return [part.data], int(part.batch_sizes[0]), []  # all sequences have a first step
    if isinstance(part, torch.Tensor):
        return [part], None, []
    if isinstance(part, Mapping):
        return [], None, list(part.values())
    if isinstance(part, (list, tuple)):
        return [], len(part) if part and isinstance(part[0], torch.Tensor) else None, list(part[:64])
    return [], None, []
