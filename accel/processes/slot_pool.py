"""Batches from DataLoader workers in reused shared memory.

torch gives every batch new shared memory: the worker waits for its pages, the parent maps them, waits again and
unmaps. Here the workers of a loader take slots of memory that they all share (``arena``). The parent counts the tensors
of a slot that are gone. When all tensors that were sent are gone, and the worker does not use the slot either, the next
worker fills it again. If there is no such memory, batches are sent as torch does.

A batch is sent as it is: when it is pickled, the addresses of its tensors show which of them lie in slots.
"""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from accel.processes.arena import Arena
from accel.system import counters, fork, memory, worker_threads
from accel.system.page_locks import Block

# -- in the parent ------------------------------------------------------------------------------------------

_loaders = itertools.count(1)
_loader: ContextVar[int] = ContextVar("accel_loader", default=0)  # a worker inherits its loader's number
_known: dict[int, _Loader] = {}


class _Loader:
    """The memory that a loader's workers and parent share, and, in the parent, the slots that it uses."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.ended = False
        self._process = os.getpid()
        self._leases: dict[int, Callable[[], memory.Lease | None]] = {}
        self._blocks: dict[int, tuple[int, Block, Any]] = {}  # by slot: ``Arena.pages`` then, its block and its bytes
        self._pages = b""
        # slots that only forked children may still use: the tensors to count as ended, and ``fork.count`` at the lease
        self._inherited: dict[int, tuple[int, int]] = {}

    def lend(self, slot: int, size: int, sent: int) -> tuple[memory.Lease, Block | None]:
        """Lend a slot's bytes for its tensor with this number; the same lease as before while that is in use."""
        if self._inherited:
            self._release_inherited()
        lease = self._leases.get(slot, lambda: None)()
        if lease is None:
            self._end_blocks()
            if slot not in self._blocks:
                part = self.arena.part(int(self.arena.offset[slot]), int(self.arena.size[slot]))
                block = Block(torch.from_numpy(part).data_ptr(), len(part))
                self._blocks[slot] = int(self.arena.pages[slot]), block, part
            lease = memory.lease(self._blocks[slot][2], size)
            self._leases[slot] = weakref.ref(lease)
        lease.on_release, lease.after_fork = partial(self._release, slot, sent), partial(self._leave, slot, sent)
        return lease, self._blocks.get(slot, (0, None))[1]

    def _end_blocks(self) -> None:
        """End the blocks of slots whose pages went back to the system, or soon will with the loader's memory."""
        if (now := self.arena.pages.tobytes()) == self._pages and not self.ended:
            return
        for slot, (pages, block, _) in list(self._blocks.items()):
            left = self.ended and slot in self._inherited
            if (left or pages != self.arena.pages[slot]) and self._blocks.pop(slot, None) is not None:
                block.end()
        self._pages = now  # only after all have ended: an interrupt, or another thread, may come in between

    def lends(self) -> bool:
        """Whether this process is the parent and uses a slot."""
        return self._process == os.getpid() and any(lease() is not None for lease in list(self._leases.values()))

    def _release(self, slot: int, sent: int) -> None:
        if slot in self._inherited:
            self._leave(slot, sent, self._inherited[slot][1])
            return
        if self.ended:
            self.arena.give_back(slot)
            self._end_blocks()
        self.arena.ended[slot] = max(self.arena.ended[slot], sent)  # another thread may be late with an earlier one

    def _leave(self, slot: int, sent: int, forks: int) -> None:
        """Keep a slot until forked children are gone. (An ended loader's memory is freed with the last of them.)"""
        if self._process == os.getpid():
            self._inherited[slot] = sent, forks
            if self.ended:
                self._end_blocks()

    def _release_inherited(self) -> None:
        for slot, (sent, forks) in list(self._inherited.items()):
            if not fork.children_since(forks):
                del self._inherited[slot]
                self._release(slot, sent)

    def end(self) -> None:
        """Free the memory of a loader whose workers are gone: unused slots now, the others when they are released."""
        self.ended = True
        if self._process == os.getpid():
            self._release_inherited()
            lent = {slot for slot, lease in list(self._leases.items()) if lease() is not None}
            for slot in np.flatnonzero(self.arena.size).tolist():
                if slot not in lent and slot not in self._inherited:
                    self.arena.give_back(slot)
            self._end_blocks()


fork.watch_children_where(lambda: any(loader.lends() for loader in list(_known.values())))


def _know(number: int, arena: Arena | None) -> None:
    if arena is not None:
        _known[number] = _Loader(arena)
        worker_threads.devices[number] = arena.device


def _end(number: int) -> None:
    if (known := _known.pop(number, None)) is not None:
        known.end()
        del worker_threads.devices[number]


def new_number() -> int:
    """A number for a further loader."""
    return next(_loaders)


@contextmanager
def loader(context: Any = None) -> Iterator[Callable[[Any], object]]:
    """Have workers that are started in the block, by this multiprocessing context (None: the default), be one loader's;
    yield a function to call with the loader's iterator, with which their shared memory is freed."""
    number = new_number()
    token = _loader.set(number)
    _know(number, Arena.make(torch.multiprocessing if context is None else context))

    def ends_with(iterator: Any) -> None:
        weakref.finalize(iterator, _end, number).atexit = False  # the pin thread may still receive batches then

    try:
        yield ends_with
    finally:
        _loader.reset(token)


def received(number: int, slot: int, sent: int, size: int) -> tuple[memory.Lease, Block | None]:
    """A slot's bytes, in the parent, which is free again when they are gone; and its block, for devices to lock."""
    known = _known.get(number)
    if known is None:
        raise RuntimeError("a batch arrived from a DataLoader whose iterator is gone")
    return known.lend(slot, size, sent)


def _receive(number: int, slot: int, sent: int, size: int, dtype: torch.dtype, *place: Any) -> Any:
    """A tensor in a slot, in the parent; its end frees the slot. ``place``: its offset, shape and strides."""
    lease, _ = received(number, slot, sent, size)
    storage = torch.from_numpy(lease).untyped_storage()
    lease.about = _known[number].arena.about[:, slot].tolist()
    _received[storage.data_ptr()] = lease
    return torch.empty(0, dtype=dtype, device="cpu").set_(storage, *place)


_received: weakref.WeakValueDictionary[int, memory.Lease] = weakref.WeakValueDictionary()  # by address


def about(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """What ``Arena.about`` says of a plain tensor; None if it came from no worker."""
    lease = None
    with suppress(RuntimeError, NotImplementedError):  # a tensor without memory
        lease = _received.get(tensor.untyped_storage().data_ptr())
    return None if lease is None else tuple(lease.about)


# -- in a worker --------------------------------------------------------------------------------------------

SlotReference = tuple[int, int, int, int]
"""The arguments of ``received``: the loader's number, a slot's, the tensor's in it, and its storage's bytes."""


class SlotPool:
    """A worker's access to the memory that its loader's workers share."""

    def __init__(self, number: int, arena: Arena) -> None:
        self._number, self.arena = number, arena
        self.looked_at: dict[int, int] = {}  # slots by address, while this worker uses them

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised tensor in a free slot, or (counted) in new shared memory if there is none."""
        size = prod(shape) * dtype.itemsize
        slot = self.arena.take(size)
        if slot is None:
            counters.fallback("workers found no room in the memory that they use again; a batch took new shared memory")
            return memory.shared(shape, dtype)
        self.arena.about[:, slot] = -1, shape[0] if len(shape) > 3 else 1, 0, 1
        lease = memory.lease(self.arena.part(int(self.arena.offset[slot]), size), size)
        lent = torch.from_numpy(lease)
        self.looked_at[lent.data_ptr()] = slot
        lease.on_release = partial(self._release, slot, lent.data_ptr())
        return lent.view(dtype).view(tuple(shape))

    def note(self, slow: int, threads: int) -> None:
        """Note for ``about`` that this worker computed the tensors in its new slots, how many fallbacks it took, and on
        how many threads."""
        about = self.arena.about
        for slot in [slot for slot in list(self.looked_at.values()) if about[0, slot] < 0]:
            worker: Any = get_worker_info()
            about[:, slot] = worker.id, about[1, slot], min(slow, about[1, slot]), threads

    def _release(self, slot: int, address: int) -> None:
        del self.looked_at[address]
        self.arena.busy[slot] = 0

    def message(self, tensor: torch.Tensor, counted: list[SlotReference]) -> Any:
        """Reduce a tensor for the parent; None if it lies in no slot. ``counted`` as of ``send``."""
        if tensor.device.type != "cpu" or tensor.layout != torch.strided or tensor.requires_grad or tensor.is_conj():
            return None
        sent = self.send(tensor, counted)
        place = tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()
        return None if sent is None else (_receive, (*sent, *place))

    def send(self, tensor: torch.Tensor, counted: list[SlotReference]) -> SlotReference | None:
        """Count the slot that a tensor lies in as sent, and note it in ``counted``; None: it is in none."""
        storage = tensor.untyped_storage()
        slot = self.looked_at.get(storage.data_ptr())
        if slot is None:
            return None
        number = int(self.arena.sent[slot]) + 1
        sent = self._number, slot, number, storage.nbytes()
        counted.append(sent)
        self.arena.sent[slot] = number
        return sent

    def take_back(self, counted: Sequence[SlotReference]) -> None:
        """Uncount slots that were counted as sent in a message that never will be."""
        for _, slot, number, _ in reversed(counted):
            if self.arena.sent[slot] == number:
                self.arena.sent[slot] = number - 1


_pool: SlotPool | None = None


def of_worker() -> SlotPool | None:
    """This worker's pool; None if the process was not started by a loader with shared memory."""
    global _pool
    if _pool is None and (known := _known.get(_loader.get())) is not None:
        _pool = SlotPool(_loader.get(), known.arena)
    return _pool


def empty(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """An uninitialised tensor for this worker to send: in a slot if it has a pool, else in new shared memory."""
    return memory.shared(shape, dtype) if _pool is None or not prod(shape) else _pool.empty(shape, dtype)


def current() -> SlotPool | None:
    """This worker's pool, if it has used it already; else None."""
    return _pool


def loader_number() -> int:
    """The number of the loader that this worker belongs to, or that is now starting workers; 0: none."""
    return _loader.get()


def arena_of(number: int) -> Arena | None:
    """The memory of the loader with this number, in its parent or a worker; None: it has none, or is gone."""
    known = _known.get(number)
    return None if known is None else known.arena


def join(number: int, arena: Arena | None) -> None:
    """Make this worker belong to the loader with this number."""
    _loader.set(number)
    _know(number, arena)
