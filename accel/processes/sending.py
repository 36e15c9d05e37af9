"""Sending batches from a DataLoader worker to its parent, or the error in place of one: never nothing.

What a queue's thread cannot pickle is lost, and the parent waits for it for ever. So a batch with anything of accel's
is packed by a reduction that never raises; in that thread, as packing takes about as long as making the next batch. If
it fails, the batch is sent as plain recipes and tensors (counted); if that fails too, an error is sent that the parent
raises, at worst one made beforehand. If the thread cannot send what was packed, or pickle what is the user's own, it
sends such an error, too; if it cannot even send that, the worker ends, which torch notices.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import wraps
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch

from accel.processes import sent_files, slot_pool
from accel.processes.sent_files import SentFiles
from accel.processes.slot_pool import SlotPool, SlotReference
from accel.system import counters, worker_threads
from accel.system.private_names import private

_utils = private("torch._utils", "ExceptionWrapper")
private("multiprocessing.queues", "Queue._on_queue_feeder_error")

_packing: ContextVar[bool | None] = ContextVar("accel_packing", default=None)
"""Whether this thread packs a batch plainly, without shared memory; None: it packs none."""


def plainly() -> bool:
    """Whether what is pickled now must do without shared memory and all that is made ahead."""
    return bool(_packing.get())


def raised_by_receiver(reduce: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a reduction for other processes: what it raises in a queue's thread, which would lose it, is raised where it
    is unpickled."""

    @wraps(reduce)
    def reduced(value: Any) -> Any:
        try:
            return reduce(value)
        except Exception as error:
            if _packing.get() is not None or threading.current_thread().name != "QueueFeederThread":
                raise
            return _refuse, (f"a value could not be sent: {_text(error)}",)

    return reduced


def _text(error: BaseException) -> str:
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception:  # of its own ``__str__``
        return f"{name}: <exception str() failed>"


def _refuse(message: str) -> None:
    raise RuntimeError(message)


class Outgoing:
    """A batch from the worker's collate to the parent, where it is unpickled as the batch; tensors in slots are sent as
    their places."""

    def __init__(self, pool: SlotPool | None, batch: Any) -> None:
        self._pool, self._batch = pool, batch

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            return pickle.loads, (self._packed(),)
        except BaseException as error:  # nothing may leave this: see above
            return _restored, (vars(_errors.of(error)),)

    def _packed(self) -> bytes:
        """Pickle the batch; without shared memory (counted) if that fails."""
        try:
            return self._pickled(plain=False)
        except Exception as error:
            failed = _text(error)
        packed = self._pickled(plain=True)  # now that the error is gone, whose traceback keeps memory
        counters.fallback(f"a batch could not be packed and was sent as plain recipes: {failed}")
        return packed

    def _pickled(self, *, plain: bool) -> bytes:
        stream = io.BytesIO()
        sender = ForkingPickler(stream)
        ordinary = sender.dispatch_table[torch.Tensor]
        contents: dict[int, bytearray] = {}
        pool = None if plain else self._pool
        sent: list[SlotReference] = []

        def reduce(tensor: torch.Tensor) -> Any:
            message = None if pool is None else pool.message(tensor, sent)
            return message or _by_value(tensor, contents, sys.maxsize if plain else _SMALL) or ordinary(tensor)

        def reduce_files(files: SentFiles) -> Any:
            message = None if pool is None else pool.send(files.data, sent)
            return (SentFiles, (files.data,)) if message is None else (sent_files.arrived, message)

        in_slots: dict[type, Any] = {torch.Tensor: reduce, SentFiles: reduce_files}
        sender.dispatch_table = {**sender.dispatch_table, **in_slots}
        token = _packing.set(plain)
        try:
            sender.dump(self._batch)
        except BaseException:
            if pool is not None:
                pool.take_back(sent)
            raise
        finally:
            _packing.reset(token)
        return stream.getvalue()


_SMALL = 1 << 15
"""The most bytes of a tensor, such as labels, that is sent in the message, which is faster than by a handle."""


def _by_value(tensor: torch.Tensor, contents: dict[int, bytearray], most: int) -> Any:
    """Reduce a tensor of ``most`` bytes or less to its memory, once for all tensors sharing it (``contents``); None:
    torch must do it."""
    if tensor.device.type != "cpu" or tensor.layout != torch.strided or tensor.requires_grad or tensor.is_conj():
        return None
    storage = tensor.untyped_storage()
    if tensor.is_neg() or tensor.is_quantized or storage.is_shared() or not 0 < storage.nbytes() <= most:
        return None
    content = contents.get(storage.data_ptr())
    if content is None:
        content = contents[storage.data_ptr()] = bytearray(storage.nbytes())
        torch.frombuffer(content, dtype=torch.uint8).untyped_storage().copy_(storage)
    return _small, (content, tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())


def _small(content: bytearray, dtype: torch.dtype, *place: Any) -> torch.Tensor:
    if place == (0, (len(content) // dtype.itemsize,), (1,)) and len(content) % dtype.itemsize == 0:
        return torch.frombuffer(content, dtype=dtype)
    storage = torch.frombuffer(content, dtype=torch.uint8).untyped_storage()
    return torch.empty(0, dtype=dtype, device="cpu").set_(storage, *place)


def outgoing(batch: Any, *, packs: bool) -> Any:
    """The object that this worker sends for a batch: a stand-in, or the batch itself if nothing of it is accel's.

    ``packs``: whether parts of it take a slot only when they are packed.
    """
    pool, slow = slot_pool.of_worker() if packs else slot_pool.current(), counters.new_fallbacks()
    if pool is not None:
        pool.note(slow, worker_threads.own().used)
    return Outgoing(pool, batch) if packs or (pool is not None and pool.looked_at) else batch


# -- errors in place of batches -----------------------------------------------------------------------------


class _Errors:
    """Makes what a worker sends in place of a batch: torch's message of an error, which the parent raises."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._beforehand = self._made(RuntimeError("a worker could not send a batch, and had no memory to say why"))

    def of(self, error: BaseException) -> Any:
        """The message of an error, with its traceback; one without, made beforehand, if that fails."""
        try:
            named = RuntimeError(f"a worker could not send a batch: {_text(error)}")  # its own class may not be pickled
            named.__cause__ = error
            return self._made(named)
        except Exception:
            return self._beforehand

    def _made(self, error: RuntimeError) -> Any:
        made = _utils.ExceptionWrapper((RuntimeError, error, None), self._where)
        setattr(made, _MARK, True)
        return made


def _restored(attributes: dict[str, Any]) -> Any:
    made = _utils.ExceptionWrapper.__new__(_utils.ExceptionWrapper)
    vars(made).update(attributes)
    return made


_MARK = "_accel_unsent"
"""An attribute of these messages."""

_errors = _Errors("in a DataLoader worker process")


def watch(queue: Any, worker: int) -> None:
    """Have the thread of a worker's queue to its parent send an error in place of what it cannot send."""
    global _errors
    _errors = errors = _Errors(f"in DataLoader worker process {worker}")

    def lost(error: Exception, item: Any) -> None:  # called in that thread, while it handles the error
        with suppress(Exception):
            if queue._closed:
                return
            if isinstance(item, tuple) and _MARK not in getattr(item[1], "__dict__", ()):
                queue.put((item[0], errors.of(error)))
                return
        try:  # it is such an error already, or bytes of which a part may have been sent
            traceback.print_exc()
        finally:
            os._exit(1)

    queue._on_queue_feeder_error = lost
