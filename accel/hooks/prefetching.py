"""How many batches of a DataLoader are under way: more than it asks for (``prefetch_factor``) while input is in bursts.

More under way means that a sampler is asked earlier. So it is done only where neither sampler nor workers can tell:
samplers of torch's that have fixed their order by then, and compiled pipelines, which run no Python of the user's.
Which worker makes which batch stays as it is: they take turns. What is found is where the next epoch begins, and the
script's next run (``tuned``).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
    default_collate,
)
from torch.utils.data.distributed import DistributedSampler

from accel.backend import backend_of
from accel.codec import store
from accel.hooks import tuned
from accel.hooks.compiled import batch, stock
from accel.hooks.patch import Body, Function
from accel.lazy import explanation
from accel.processes import switch
from accel.system import counters

MOST = 8
"""The most batches under way for each worker, unless the script asks for more."""

LOOKED_AT, CALM = 32, 256
"""The batches that are looked at together, and after how many that nobody waited for fewer are under way."""

_SLOTS = 128  # of 255 in which a loader's batches are sent (``accel.processes.arena``)
_SAMPLERS = RandomSampler, SequentialSampler, WeightedRandomSampler, DistributedSampler
_LOADER = "torch.utils.data.dataloader._MultiProcessingDataLoaderIter"


class Depth:
    """How many batches of an iterator are under way.

    Twice as many if, within ``LOOKED_AT`` batches, the training has waited for one and a worker for the training, and
    they take at most a quarter of the free memory. Half as many if the training has waited for none of ``CALM``
    batches, or they take more than is free.

    Attributes:
        batches: how many there are to be. least: how many the script asks for.
    """

    def __init__(self, least: int, most: int, begun: int = 0, loader: str | None = None) -> None:
        """``least``: what the script asks for. ``begun``: how many to begin with, if these are more. ``loader``: its
        name among what is kept."""
        self.batches, self.least, self._most, self._loader = max(least, begun), least, most, loader
        self._count = self._calm = self._size = 0
        self._waited = self._idle = False

    def note(self, waited: bool, idle: bool, size: int) -> None:
        """Note that a batch of so many bytes is taken; ``waited``: none was there; ``idle``: a worker had none to make.

        The first ones are waited for in any case.
        """
        self._waited |= waited and self._count >= LOOKED_AT
        self._idle |= idle
        self._calm = 0 if waited else self._calm + 1
        self._size = max(self._size, size)
        self._count += 1
        bursts = self._waited and self._idle
        if self._count % LOOKED_AT and not bursts:
            return
        self._waited = self._idle = False
        before, more, left = self.batches, min(2 * self.batches, self._most), store.left() or 0
        if self._calm >= CALM or self.batches * self._size > left:
            self.batches, self._calm = max(self.batches // 2, self.least), 0
        elif bursts and more > self.batches and 4 * more * self._size <= left:
            self.batches = more
            counters.count(counters.PREFETCH_RAISED)
        if self.batches != before and self._loader is not None:
            tuned.keep(self._loader, self.batches if self.batches > self.least else 0, self._size)


def depth(loader: DataLoader[Any], in_flight: int) -> Depth | None:
    """The depth of a new iterator; None: it stays the script's. ``in_flight``: the batches that were under way in the
    state that it goes on from, whose sampler was asked for as many; 0: none."""
    least, most, name = loader.num_workers * (loader.prefetch_factor or 0), 0, None
    if loader.num_workers and _may_change(loader):
        most, name = min(MOST * loader.num_workers, _SLOTS), tuned.name(loader)
        batches, size = tuned.known(name)
        if not in_flight and 4 * batches * size <= (store.left() or 0):
            in_flight = min(batches, most)
    if isinstance(loader.dataset, IterableDataset):  # whose workers are asked in vain when they end
        in_flight = 0
    return Depth(least, most, in_flight, name) if most > least or in_flight > least > 0 else None


def _may_change(loader: DataLoader[Any]) -> bool:
    selection, batches = switch.current(), loader.batch_sampler
    sampler: Any = getattr(batches, "sampler", None)
    dataset: Any = loader.dataset
    return (
        getattr(selection.options, "threads", None) == "auto"
        and not backend_of(selection).devices
        and store.left() is not None  # it is Linux, whose queues know their length
        and loader.in_order
        and not loader.persistent_workers  # after an epoch that is left early, their random states would be others
        and loader.worker_init_fn is None
        and loader.collate_fn is default_collate
        and type(batches) is BatchSampler
        and type(sampler) in _SAMPLERS  # not SubsetRandomSampler, whose indices may change until they are given
        and not (type(sampler) is RandomSampler and (sampler.generator or sampler.data_source is not dataset))
        and stock.unchanged(depth, tuple(each.__iter__ for each in (BatchSampler, *_SAMPLERS)))
        and batch.prepare(dataset)
    )


def _describe(x: Any) -> str | None:
    """How far ahead a loader's workers begin, if that is not the script's number."""
    if not isinstance(x, DataLoader) or (found := depth(x, 0)) is None or found.batches == found.least:
        return None
    return f"{found.batches} batches are under way, as when this script last ran; it asks for {found.least}"


explanation.also(_describe)


def _get_data(original: Function, self: Any) -> Any:
    own: Depth | None = self.__dict__.get("accel_depth")
    if own is None or self.accel_progress.saved is not None:  # it proves that it goes on from a state
        return original(self)
    queues = {self._worker_result_queue, self._data_queue}  # two if a thread pins
    there, under_way = sum(queue.qsize() for queue in queues), self._tasks_outstanding
    number, made = original(self)
    size = sum(each.nbytes for each in made if isinstance(each, torch.Tensor)) if type(made) is list else 0
    own.note(not there, under_way - there < self._num_workers, size)
    return number, made


def _try_put_index(original: Function, self: Any) -> None:
    own: Depth | None = self.__dict__.get("accel_depth")
    if own is None:
        original(self)
        return
    self._prefetch_factor = -(-own.batches // self._num_workers)
    while len(self._task_info) < own.batches:
        sent = self._send_idx
        original(self)
        if self._send_idx == sent:  # the epoch has no more
            break


PATCHES = (Body(f"{_LOADER}._get_data", _get_data), Body(f"{_LOADER}._try_put_index", _try_put_index))
