"""torch's DataLoader: collate functions take lazy samples, and workers compute and send batches of them.

Samples that a collate function does not stack are computed together (``accel.lazy.batch``).
"""

from __future__ import annotations

import inspect
import sys
from contextlib import nullcontext
from typing import Any

import torch
from torch.utils.data import default_collate, get_worker_info

from accel.backend import backend_of, host_of
from accel.errors import DecodeError
from accel.hooks import claimed_files, resume, timm
from accel.hooks.compiled import batch
from accel.hooks.patch import Attribute, Body, Function
from accel.hooks.tv_files import ahead
from accel.hooks.tv_tensors import LazyTVImage, keeps_class
from accel.lazy import dataset_warmup, loader_batch, search, tensor
from accel.lazy.batch import compute_together
from accel.lazy.tensor_base import LazyTensorBase, is_lazy
from accel.planning.order import has_tail
from accel.processes import sending, slot_pool, switch
from accel.processes.launch import environment
from accel.processes.leaving import leaves
from accel.recipes.recipe import recording
from accel.resuming import batch_record, recording_only
from accel.resuming import worker as worker_notes
from accel.resuming.progress import Checked, Digested, Recorded, Restored, Task
from accel.runtime.memo import cached
from accel.system import log, notes, thread_pools, worker_threads
from accel.system.caller import frame
from accel.system.private_names import private
from accel.system.timing import measuring

worker = private("torch.utils.data._utils.worker")
fetch = private("torch.utils.data._utils.fetch", "_MapDatasetFetcher")


class Collating:
    """A collate function that can take lazy samples."""

    def __init__(self, original: Function) -> None:
        self.original = original
        self._collate = timm.adapted(original)
        self.stacks = original is default_collate

    def __call__(self, samples: Any) -> Any:
        if not self.stacks:
            states = dict.fromkeys(each.lazy for each in search.lazy_tensors(samples) if is_lazy(each))
            compute_together(states)
        return self._collate(samples)


# -- in any process -----------------------------------------------------------------------------------------


def _collate_tensors(original: Function, batch: list[Any], *, collate_fn_map: Any = None) -> Any:
    """``default_collate``'s function for tensors, which stacks lazy ones."""
    if not isinstance(batch[0], LazyTensorBase):
        return original(batch, collate_fn_map=collate_fn_map)
    stacked = None if isinstance(batch[0], LazyTVImage) and keeps_class() else tensor.collated(batch)
    if stacked is None:
        plain = [LazyTensorBase.materialize(t) if isinstance(t, LazyTensorBase) else t for t in batch]
        return original(plain, collate_fn_map=collate_fn_map)
    return stacked


def _located(original: Function, self: Any, index: Any) -> Any:
    """A fetcher's ``fetch``, which notes on an error which sample and file it came from."""
    if switch.active() is None:
        return original(self, index)
    batched = self.auto_collation and type(index) is list
    indices = notes.Indices(index) if batched else index
    try:
        return original(self, indices)
    except StopIteration:
        raise
    except Exception as error:
        if notes.passed(error, Collating.__call__):
            indices = None
        elif self.auto_collation and not batched:
            indices = tuple(index)
        notes.locate(error, indices)
        raise


def _made(original: Function, self: Any, index: Any) -> tuple[Any, list[LazyTensorBase] | None]:
    """The batch of a fetcher's ``fetch``: drawn in one go where possible, else made of single samples.

    Also the lazy tensors in it; None if they must be searched for.
    """
    own = self.collate_fn
    maps = type(self) is fetch._MapDatasetFetcher and self.auto_collation
    made = batch.fetched(self.dataset, index, own.stacks) if maps else None
    if not isinstance(made, batch.RecordedBatch):
        way = f"one by one: {made or 'the loader makes no batches'}" if maps else "one by one: the dataset is iterable"
        try:
            with (
                claimed_files.into_slot(switch.active(), len(index) if type(index) is list else 0),
                recording.batch(way, made is not None and not isinstance(made, batch.OwnSamples)),
            ):
                return _located(original, self, index), None
        finally:
            ahead.forget()
    try:
        stacked = made.stacked() if own.stacks else None
        if stacked is None:
            return own(made.samples()), None
        return stacked, stacked[:1] if type(stacked[1]) is torch.Tensor else None
    except StopIteration:
        raise
    except Exception as error:
        notes.locate(error, None)
        raise


def _fetch(original: Function, self: Any, index: Any) -> Any:
    """A fetcher's ``fetch``; in a worker of a host backend it also computes the batch, before it is sent."""
    if not isinstance(self.collate_fn, Collating):
        self.collate_fn = Collating(self.collate_fn)
    if get_worker_info() is None:
        made, lazy = _made(original, self, index.indices if isinstance(index, Task) else index)
        batch_record.note(made)
        if isinstance(index, Recorded):
            return recording_only.content_digest(made) if type(index) is Digested else None
        loader_batch.gather(search.lazy_tensors(made) if lazy is None else lazy, 0, index)
        return made
    caller = frame(2).f_code  # past this function and torch's; this function calls itself, below
    if caller.co_name != "_worker_loop" and caller not in (_fetch.__code__, fetched_as_in_worker.__code__):
        return _located(original, self, index.indices if isinstance(index, Task) else index)
    if measuring.look():
        return self.fetch(index)  # which now has clocks around it, or has none any more
    if type(index) is Restored:
        with tensor.fetching():
            return worker_notes.restored(index, self, lambda indices: _made(original, self, indices)[0])
    with worker_threads.own().batch():
        return _made_in_worker(original, self, index)


def _made_in_worker(original: Function, self: Any, index: Any) -> Any:
    task, index = index, index.indices if isinstance(index, Task) else index
    carrier = worker_notes.carrier(self, index)
    selection, placed = switch.active(), False
    computes = selection is not None and not backend_of(selection).devices
    try:
        with tensor.fetching():
            made, lazy = _made(original, self, index)
            if carrier is not None:
                carrier.record = batch_record.noted(made)
                if type(task) is Checked:
                    carrier.check(lambda indices: _made(original, self, indices)[0])
        if isinstance(task, Recorded):
            return _with_note(recording_only.content_digest(made) if type(task) is Digested else None, carrier)
        states = search.lazy_tensors(made, sent=computes) if lazy is None else lazy
        loader_batch.gather(states, slot_pool.loader_number(), index)
        placed = bool(states) and not computes and _is_placed(states)
        with worker_threads.own().on_host() if placed else nullcontext():
            for lazy_tensor in states:
                tensor.materialized_in_worker(lazy_tensor, placed=placed)
    except DecodeError as error:
        where = index[error.position or 0] if isinstance(index, list) and error.batch == len(index) else None
        if where is None:
            raise
        raise type(error)(f"{error} (dataset index {where})") from error
    return _with_note(sending.outgoing(made, packs=bool(states) and not (computes or placed)), carrier)


def _with_note(batch: Any, carrier: worker_notes.Carrier | None) -> Any:
    if carrier is None:
        return batch
    carrier.batch = batch
    return carrier


def _is_placed(states: list[LazyTensorBase]) -> bool:
    """Whether a worker of an accelerator backend computes its batch on the host: not where torchvision's kernels finish
    it, whose values on a device may be others."""
    options, arena = states[0].lazy.selection.options, slot_pool.arena_of(slot_pool.loader_number())
    if getattr(options, "placement", "device") != "auto" or arena is None:
        return False
    tailed = any(has_tail(each.lazy.recipes) or each.lazy.after for each in states)
    placed = not tailed and worker_threads.own().has_time(arena.backlog())
    worker: Any = get_worker_info()
    arena.made[worker.id % len(arena.made)] += not placed
    return placed


def fetched_as_in_worker(fetcher: Any, indices: list[int]) -> Any:
    """Fetch a batch as a worker's loop does; any other caller in a worker is a loader inside the dataset."""
    return fetcher.fetch(indices)


def _get_iterator(original: Function, self: Any) -> Any:
    """``DataLoader._get_iterator``, which prepares what workers need before they are started."""
    selection = switch.active()
    if self.num_workers == 0 or selection is None:
        return resume.made(self, original(self))
    measuring.share(own=True)
    host_of(selection).prepare()
    batch.prepare(self.dataset)
    dataset_warmup.compute(self.dataset, getattr(selection.options, "threads", "auto"))
    cached.flush()
    log.flush()
    with slot_pool.loader(self.multiprocessing_context) as keep_for:
        iterator = original(self)
        keep_for(iterator)
    return resume.made(self, iterator)


class _WorkerEntry:
    """The function that a DataLoader worker runs.

    A worker that is not forked gets the switch from ``accel.hooks.multiprocessing``, whose pickle also imports accel,
    and from here what only its loader knows.
    """

    def __init__(self, original: Function) -> None:
        self.original = original

    def __call__(self, *args: Any) -> Any:
        arguments = inspect.signature(self.original).bind(*args).arguments
        sending.watch(arguments["data_queue"], arguments["worker_id"])
        worker_threads.orders = arguments["index_queue"]
        worker_notes.begin()
        if (environment.settings() or {}).get("limit_threads"):
            thread_pools.limit()
        try:
            return self.original(*args)
        finally:
            log.flush()

    def __reduce__(self) -> tuple[Any, ...]:
        number = slot_pool.loader_number()
        return _enter_worker, (number, slot_pool.arena_of(number))


def _enter_worker(*loader: Any) -> Function:
    slot_pool.join(*loader)
    return leaves(worker._worker_loop)


def _wrapped(original: Function) -> Function:
    """``ExceptionWrapper.__init__``, which adds notes to the text of a worker's error if Python does not (3.10)."""
    if notes.SHOWN_BY_PYTHON:
        return original

    def __init__(self: Any, exc_info: Any = None, where: str = "in background") -> None:
        exc_info = exc_info or sys.exc_info()
        original(self, exc_info, where)
        for note in getattr(exc_info[1], "__notes__", ()):
            self.exc_msg += f"{note}\n"

    return __init__


_WORKERS = "torch.utils.data._utils"
PATCHES = (
    Body(f"{_WORKERS}.collate.collate_tensor_fn", _collate_tensors),
    Body(f"{_WORKERS}.fetch._MapDatasetFetcher.fetch", _fetch),
    Body(f"{_WORKERS}.fetch._IterableDatasetFetcher.fetch", _fetch),
    Attribute(f"{_WORKERS}.worker._worker_loop", _WorkerEntry),
    Body("torch.utils.data.DataLoader._get_iterator", _get_iterator),
    Attribute("torch._utils.ExceptionWrapper.__init__", _wrapped),
)
