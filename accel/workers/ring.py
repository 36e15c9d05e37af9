"""Batches from DataLoader workers in shared memory that is used again.

torch gives every batch new shared memory: the worker waits for its pages, the parent maps them, waits again and
unmaps. Here a worker keeps a few slots. Each is mapped by the parent once; the parent sets the slot's flag when
nothing looks at the batch any more, and the worker fills it again. A batch that something in the worker still
looks at is sent as torch would, and its slot is never used again.

Where shared memory is a file, the file goes when the parent has mapped it, or when the worker ends; of one that is
killed, what it had sent and the parent never took stays until torch's own manager of such files ends.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod
from typing import Any, NamedTuple

import torch

from accel.system import memory

_SLOTS = 8
_FREE, _SENT = 0, 1

# -- the parent ---------------------------------------------------------------------------------------------

_loaders = itertools.count(1)
_loader: ContextVar[int] = ContextVar("accel_loader", default=0)  # a worker inherits its loader's number
_mapped: dict[int, dict[tuple[int, int], tuple[_Shared, _Shared]]] = {}


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


def _receive(key: tuple[int, int, int], layout: _Layout, mapping: tuple[_Shared, _Shared] | None) -> Any:
    """A batch, in the parent: a plain tensor that gives the slot free when it goes."""
    number, worker, slot = key
    known = _mapped.get(number)
    if known is None:
        raise RuntimeError("a batch arrived from a DataLoader whose iterator is gone")
    if mapping is not None:
        for shared in mapping:
            shared.remove_name()
        known[worker, slot] = mapping
    (content, _), (flags, _) = known[worker, slot]
    flag = flags.numpy()
    return layout.on(memory.leased(content.numpy(), layout.size, lambda: flag.__setitem__(slot, _FREE)))


# -- a worker -----------------------------------------------------------------------------------------------


class _Layout:
    """How a tensor lies in its bytes."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.dtype = tensor.dtype
        self.shape, self.strides = tuple(tensor.shape), tensor.stride()
        self.size = tensor.untyped_storage().nbytes()

    @staticmethod
    def is_whole(tensor: torch.Tensor) -> bool:
        """Whether a tensor begins where its storage does, and is nothing but its values."""
        return bool(tensor.storage_offset() == 0 and not tensor.requires_grad)

    def on(self, content: torch.Tensor) -> torch.Tensor:
        return content.view(self.dtype).as_strided(self.shape, self.strides)


class _Slot:
    """Shared memory for one batch at a time."""

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.shared = _Shared.make(size)
        self.content = self.shared.content
        self.looked_at = False  # by something in the worker
        self.mapped = False  # by the parent

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
        self._shared_flags = _Shared.make(_SLOTS)
        self._flags = self._shared_flags.content.zero_()

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised tensor in a slot that nobody looks at, or in new shared memory if there is none."""
        size = prod(shape) * dtype.itemsize
        slot = self._free_slot(size)
        if slot is None:
            return memory.shared(shape, dtype)
        return slot.lend(size).view(dtype).view(tuple(shape))

    def outgoing(self, tensors: list[Any]) -> list[Any]:
        """What to send in place of these values, a batch's; the list is emptied, so that nothing looks at them."""
        slots = [self._slot_of(tensor) for tensor in tensors]
        sent: list[Any] = []
        for slot in reversed(slots):
            tensor = tensors.pop()
            if slot is None or slots.count(slot) > 1 or not _Layout.is_whole(tensor):
                sent.append(tensor)  # as torch does, which keeps what tensors share
            else:
                layout = _Layout(tensor)
                del tensor
                sent.append(self._message(slot, layout))
        return sent[::-1]

    def _message(self, slot: _Slot, layout: _Layout) -> Any:
        if slot.looked_at:
            self._slots[slot.number] = None
            return layout.on(slot.content)
        mapping = None if slot.mapped else (slot.shared, self._shared_flags)
        slot.mapped = True
        self._flags[slot.number] = _SENT
        return _Message((*self._key, slot.number), layout, mapping)

    def close(self) -> None:
        """To be called when the worker ends, and its parent expects nothing more of it."""
        for shared in (self._shared_flags, *(slot.shared for slot in self._slots if slot is not None)):
            shared.remove_name()

    def _free_slot(self, size: int) -> _Slot | None:
        free = []
        for number, slot in enumerate(self._slots):
            if slot is None or (self._flags[number] == _FREE and not slot.looked_at):
                if slot is not None and size <= len(slot.content) <= 2 * size:
                    return slot
                free.append(number)
        if not free:
            return None
        slot = self._slots[free[0]] = _Slot(free[0], size)
        return slot

    def _slot_of(self, tensor: Any) -> _Slot | None:
        if type(tensor) is not torch.Tensor or tensor.device.type != "cpu" or tensor.layout != torch.strided:
            return None
        address = tensor.untyped_storage().data_ptr()
        for slot in self._slots:
            if slot is not None and slot.looked_at and slot.content.data_ptr() == address:
                return slot
        return None


class _Message:
    """Stands for a batch between the worker's collate and the parent, where it unpickles as the tensor."""

    def __init__(self, key: tuple[int, int, int], layout: _Layout, mapping: Any) -> None:
        self._arguments = (key, layout, mapping)

    def __reduce__(self) -> tuple[Any, ...]:
        return _receive, self._arguments


_ring: Ring | None = None


def of_worker(worker: int) -> Ring | None:
    """This worker's ring; None where the process was not started by a loader that knows of rings."""
    global _ring
    if _ring is None and _loader.get():
        _ring = Ring(_loader.get(), worker)
    return _ring


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
