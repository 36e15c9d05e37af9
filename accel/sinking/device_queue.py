"""``accel.device_queue``: a loader's batches on the device, some of them ahead of the training step."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch._utils import ExceptionWrapper
from torch.nn.utils.rnn import PackedSequence
from torch.utils.data import DataLoader

from accel.lazy import search
from accel.lazy.batch import companions, submit
from accel.lazy.tensor_base import LazyTensorBase, is_lazy
from accel.runtime import prefetch, streams
from accel.runtime.prefetch import PrefetchQueue, Submission
from accel.runtime.task import Task, Transfer
from accel.sinking.structure import mapped
from accel.system import log

Batch = TypeVar("Batch")
_POLL = 5.0  # seconds after which the receiving thread looks whether it shall end; it is woken as well


def device_queue(loader: Any, device: Any, depth: int = 3) -> DeviceQueue[Any]:
    """Iterate over a loader's batches on a device, up to ``depth`` of them ahead.

    Images are computed and all other tensors of a batch are copied on streams of accel's own, while the training step
    runs; ``next()`` has the current stream wait for them, not the host. Batches come in the loader's order, with its
    errors. Indices and random numbers are drawn when they are without the queue: at ``next()``.

    Args:
        loader: any iterable of batches. They are brought ahead for a ``DataLoader`` with workers, whose batches are
            made ahead; its ``pin_memory`` is of no account. Others are asked for a batch when it is needed.
            With persistent workers it stays a queue's: a plain loop over it starts workers of its own.
        device: where the tensors shall be, as ``torch.device`` takes it. On the host nothing is done ahead.
        depth: how many batches may be under way or on the device, besides the one that was handed out last; at least 1.

    Returns:
        An iterable like the loader: each ``iter()`` begins an epoch. A batch has the loader's structure; tensors in
        tuples, lists and mappings are on the device, in memory of their own, other objects are passed on as they are.

    Raises:
        ValueError: ``depth`` is no positive int.
    """
    return DeviceQueue(loader, device, depth)


class DeviceQueue(Generic[Batch]):
    """See ``device_queue``."""

    def __init__(self, loader: Any, device: Any, depth: int = 3) -> None:
        if type(depth) is not int or depth < 1:
            raise ValueError(f"depth must be a positive int, got {depth!r}")
        self.loader, self.device, self.depth = loader, streams.indexed(torch.device(device)), depth

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Batch]:
        return _Epoch(*self._begun(), self.device)

    def _begun(self) -> tuple[Any, PrefetchQueue | None]:
        loader = self.loader
        if not streams.runs_ahead(self.device):
            return iter(loader), None
        if (
            not isinstance(loader, DataLoader)
            or type(loader).__iter__ is not DataLoader.__iter__
            or not loader.num_workers
        ):
            log.once(
                log.INFO,
                "accel.device_queue: batches of %s are brought to the device when they are asked for, as they are not "
                "made by a DataLoader's workers",
                type(loader).__name__,
            )
            return iter(loader), None
        if loader in _persistent:
            iterator, ahead = _persistent[loader]
            ahead.prefetch = self.depth
            ahead.set_device(self.device)  # before batches of this epoch arrive
            iterator._reset(loader)
            return iterator, ahead
        if loader.persistent_workers and loader._iterator is not None and not loader._iterator._pin_memory:
            iterator, loader._iterator = loader._iterator, None
            iterator._reset(loader)
            return self._fed(iterator)
        pins, loader.pin_memory = loader.pin_memory, False
        try:
            iterator = loader._get_iterator()
        finally:
            loader.pin_memory = pins
        return self._fed(iterator)

    def _fed(self, iterator: Any) -> tuple[Any, PrefetchQueue]:
        ahead = PrefetchQueue(self.depth)
        ahead.set_device(self.device)
        _receive(iterator, ahead)
        if self.loader.persistent_workers:
            _persistent[self.loader] = iterator, ahead
        return iterator, ahead


_persistent: weakref.WeakKeyDictionary[DataLoader[Any], tuple[Any, PrefetchQueue]] = weakref.WeakKeyDictionary()
"""torch's iterators of loaders with persistent workers that were used by a queue: they go on with the same workers."""


class _Epoch(Generic[Batch]):
    """The batches of one epoch."""

    def __init__(self, batches: Any, ahead: PrefetchQueue | None, device: torch.device) -> None:
        self._batches, self._ahead, self._device = batches, ahead, device

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch = next(self._batches)
        sent = batch if isinstance(batch, _Sent) else _Sent(batch, None)
        arrived: Batch = sent.arrived(self._ahead, self._device)
        return arrived


_MOVED = (torch.Tensor, PackedSequence)


class _Sent(NamedTuple):
    """A batch that was submitted: plain tensors in it are transfers."""

    content: Any
    submission: Submission | None

    def arrived(self, ahead: PrefetchQueue | None, device: torch.device) -> Any:
        """The batch on the device: the current stream waits for what is not done."""

        def on_device(part: Any) -> Any:
            if isinstance(part, Transfer):
                return part.result()
            if isinstance(part, LazyTensorBase) or not isinstance(part, torch.Tensor) or part.layout != torch.strided:
                return part.to(device)
            task = Transfer(part)
            task.run(device)
            return task.result()

        if ahead is None or self.submission is None:
            return mapped(self.content, _MOVED, on_device)
        ahead.start_now(self.submission)
        try:
            return mapped(self.content, (*_MOVED, Transfer), on_device)
        finally:
            ahead.release(self.submission)


def _sent(batch: Any, ahead: PrefetchQueue) -> Any:
    """A batch with its tensors submitted, which starts when its turn comes; itself if there are none."""
    transfers: list[Task] = []

    def transfer(tensor: torch.Tensor) -> Any:
        if (isinstance(tensor, LazyTensorBase) and is_lazy(tensor)) or tensor.layout != torch.strided:
            return tensor
        transfers.append(Transfer(LazyTensorBase.materialize(tensor) if isinstance(tensor, LazyTensorBase) else tensor))
        return transfers[-1]

    assert ahead.device is not None
    content = mapped(batch, torch.Tensor, transfer)
    usable = [each.lazy for each in search.lazy_tensors(content) if prefetch.usable(each.lazy.selection, ahead.device)]
    if not (usable or transfers):
        return batch
    submission = submit(companions(usable[0]) if usable else (), ahead.foreseen, transfers)
    ahead.add(submission)
    return _Sent(content, submission)


# -- the place of torch's pin thread -------------------------------------------------------------------------


def _receive(iterator: Any, ahead: PrefetchQueue) -> None:
    """Have a thread take the workers' batches and submit them. torch ends it as it does its pin thread."""
    arrived = _Arrived()
    ending = threading.Event()
    thread = _Thread(
        target=_serve, args=(iterator._worker_result_queue, arrived, ending, ahead), name="accel-arrivals", daemon=True
    )
    iterator._pin_memory, iterator._data_queue = True, arrived
    iterator._pin_memory_thread, iterator._pin_memory_thread_done_event = thread, ending
    thread.start()


class _Thread(threading.Thread):
    def join(self, timeout: float | None = None) -> None:
        if self is not threading.current_thread():  # an iterator in a cycle may be collected by this thread
            super().join(timeout)


class _Arrived(queue.SimpleQueue[Any]):
    """Messages for torch's iterator. What reading one from a worker raised is raised where it is taken."""

    def get(self, *args: Any, **kwargs: Any) -> Any:
        message = super().get(*args, **kwargs)
        if isinstance(message, Exception):
            raise message
        return message


def _serve(sent: Any, arrived: _Arrived, ending: threading.Event, ahead: PrefetchQueue) -> None:
    log.is_ours()
    while not ending.is_set():
        try:
            number, data = sent.get(timeout=_POLL)
        except queue.Empty:
            continue
        except Exception as error:
            arrived.put(error)
            continue
        if type(number) is int and not isinstance(data, ExceptionWrapper) and not ending.is_set():
            try:
                data = _sent(data, ahead)
            except Exception:
                data = ExceptionWrapper(where=f"while a batch was submitted to {ahead.device}")
        arrived.put((number, data))
        del data  # nothing of a batch is kept while the next is waited for
