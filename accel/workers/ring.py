"""Batches from DataLoader workers in shared memory that is used again.

torch gives every batch new shared memory: the worker waits for its pages, the parent maps them, waits again and
unmaps. Here a worker keeps a few slots. Each is mapped by the parent once; the parent says how many of the tensors
sent in a slot it has seen the end of, and when these are all, and nothing in the worker looks at the slot either, the
worker fills it again.

A batch is sent as it is: what of it lies in a slot is told from its address when the batch is pickled.

Where shared memory is a file, the file goes when the parent has mapped it, or when the worker ends; of one that is
killed, what it had sent and the parent never took stays until torch's own manager of such files ends.
"""

from __future__ import annotations

import io
import itertools
import pickle
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from math import prod
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from accel.system import memory

_SLOTS = 8
_COUNT = np.dtype(np.int64)

# -- the parent ---------------------------------------------------------------------------------------------

_loaders = itertools.count(1)
_loader: ContextVar[int] = ContextVar("accel_loader", default=0)  # a worker inherits its loader's number
_mapped: dict[int, dict[tuple[int, int], _Mapped]] = {}


class _Shared(NamedTuple):
    """Shared memory, uint8[size], and its name (``memory.name_of``)."""

    content: torch.Tensor
    name: str | None

    @classmethod
    def make(cls, size: int) -> _Shared:
        made = memory.shared((size,), torch.uint8)
        return cls(made, memory.name_of(made))

    def remove_name(self) -> None:
        memory.remove_name(*self)


@contextmanager
def loader() -> Iterator[Callable[[Any], object]]:
    """Workers started inside belong to one loader; call what it yields with the loader's iterator, which it
    keeps the mappings for."""
    number = next(_loaders)
    token = _loader.set(number)
    _mapped[number] = {}
    try:
        yield lambda iterator: weakref.finalize(iterator, _mapped.pop, number, None)
    finally:
        _loader.reset(token)


class _Mapped:
    """A slot of a worker's, in the parent."""

    def __init__(self, content: torch.Tensor, ended: npt.NDArray[Any], slot: int) -> None:
        self._content, self._ended, self._slot = content.numpy(), ended, slot
        self._lease: Callable[[], memory.Lease | None] = lambda: None

    def lend(self, size: int, sent: int) -> memory.Lease:
        """Its first bytes, for the tensor of that number; the same ones as before while somebody looks at them."""
        lease = self._lease()
        if lease is None:
            lease = memory.lease(self._content, size)
            self._lease = weakref.ref(lease)
        lease.on_release = partial(_all_ended, self._ended, self._slot, sent)
        return lease


def _all_ended(ended: npt.NDArray[Any], slot: int, sent: int) -> None:
    ended[slot] = max(ended[slot], sent)  # another thread may be late with an earlier one


def _receive(key: tuple[int, int, int, int], layout: _Layout, mapping: tuple[_Shared, _Shared] | None) -> Any:
    """A tensor, in the parent: a plain one, with whose end the slot may be used again."""
    number, worker, slot, sent = key
    known = _mapped.get(number)
    if known is None:
        raise RuntimeError("a batch arrived from a DataLoader whose iterator is gone")
    if mapping is not None:
        for shared in mapping:
            shared.remove_name()
        known[worker, slot] = _Mapped(mapping[0].content, mapping[1].content.numpy().view(_COUNT), slot)
    return layout.on(known[worker, slot].lend(layout.size, sent))


# -- a worker -----------------------------------------------------------------------------------------------


class _Layout:
    """How a tensor lies in the bytes of its storage."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.dtype, self.offset = tensor.dtype, tensor.storage_offset()
        self.shape, self.strides = tuple(tensor.shape), tensor.stride()
        self.size = tensor.untyped_storage().nbytes()

    def on(self, content: npt.NDArray[np.uint8]) -> torch.Tensor:
        storage = torch.from_numpy(content).untyped_storage()
        empty = torch.empty(0, dtype=self.dtype, device="cpu")
        return empty.set_(storage, self.offset, self.shape, self.strides)


class _Slot:
    """Shared memory for one batch at a time."""

    def __init__(self, number: int, size: int, sent: int) -> None:
        self.number = number
        self.shared = _Shared.make(size)
        self.content = self.shared.content
        self.looked_at = False  # by something in the worker
        self.mapped = False  # by the parent
        self.sent = sent  # tensors, those in earlier slots of this number too

    def lend(self, size: int) -> torch.Tensor:
        self.looked_at = True
        return memory.leased(self.content.numpy(), size, self._released)

    def _released(self) -> None:
        self.looked_at = False


class Ring:
    """The slots of one worker."""

    def __init__(self, number: int, worker: int) -> None:
        self._key = (number, worker)
        self._slots: list[_Slot | None] = [None] * _SLOTS
        self._shared_ended = _Shared.make(_SLOTS * _COUNT.itemsize)
        self._ended = self._shared_ended.content.zero_().numpy().view(_COUNT)

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised tensor in a slot that nobody looks at, or in new shared memory if there is none."""
        size = prod(shape) * dtype.itemsize
        slot = self._free_slot(size)
        if slot is None:
            return memory.shared(shape, dtype)
        return slot.lend(size).view(dtype).view(tuple(shape))

    def outgoing(self, batch: Any) -> Any:
        """What to send in place of a batch; the batch stays as it is."""
        return _Outgoing(self, batch) if any(slot is not None and slot.looked_at for slot in self._slots) else batch

    def message(self, tensor: torch.Tensor) -> Any:
        """How a tensor is pickled for the parent; NotImplemented where it lies in no slot. For any thread."""
        if tensor.device.type != "cpu" or tensor.layout != torch.strided or tensor.requires_grad or tensor.is_conj():
            return NotImplemented
        slot = self._slot_at(tensor.untyped_storage().data_ptr())
        if slot is None or tensor is slot.content:
            return NotImplemented
        mapping = None if slot.mapped else (slot.shared, self._shared_ended)
        slot.mapped = True
        slot.sent += 1
        return _receive, ((*self._key, slot.number, slot.sent), _Layout(tensor), mapping)

    def close(self) -> None:
        """To be called when the worker ends, and its parent expects nothing more of it."""
        for shared in (self._shared_ended, *(slot.shared for slot in self._slots if slot is not None)):
            shared.remove_name()

    def _free_slot(self, size: int) -> _Slot | None:
        free = []
        for number, slot in enumerate(self._slots):
            if slot is None or (self._ended[number] == slot.sent and not slot.looked_at):
                if slot is not None and size <= len(slot.content) <= 2 * size:
                    return slot
                free.append(number)
        if not free:
            return None
        last = self._slots[free[0]]
        slot = self._slots[free[0]] = _Slot(free[0], size, 0 if last is None else last.sent)
        return slot

    def _slot_at(self, address: int) -> _Slot | None:
        for slot in self._slots:
            if slot is not None and slot.looked_at and slot.content.data_ptr() == address:
                return slot
        return None


class _Outgoing:
    """Stands for a batch between the worker's collate and the parent, where it unpickles as the batch."""

    def __init__(self, ring: Ring, batch: Any) -> None:
        self._ring = ring
        self._batch = batch

    def __reduce__(self) -> tuple[Any, ...]:
        stream = io.BytesIO()
        _Sender(self._ring, stream).dump(self._batch)
        return pickle.loads, (stream.getvalue(),)


class _Sender(ForkingPickler):
    """Pickles for the parent, and for no other process: what lies in slots by where it lies."""

    def __init__(self, ring: Ring, stream: io.BytesIO) -> None:
        super().__init__(stream)
        self._ring = ring

    def reducer_override(self, value: Any) -> Any:
        return self._ring.message(value) if type(value) is torch.Tensor else NotImplemented


_ring: Ring | None = None


def of_worker(worker: int) -> Ring | None:
    """This worker's ring; None where the process was not started by a loader that knows of rings."""
    global _ring
    if _ring is None and _loader.get():
        _ring = Ring(_loader.get(), worker)
    return _ring


def outgoing(batch: Any) -> Any:
    """What this worker sends in place of a batch."""
    return batch if _ring is None else _ring.outgoing(batch)


def close() -> None:
    """The worker ends."""
    if _ring is not None:
        _ring.close()


def loader_number() -> int:
    """What a worker started without fork must be told (``join_loader``)."""
    return _loader.get()


def join_loader(number: int) -> None:
    """Belong to the loader of that number."""
    _loader.set(number)
