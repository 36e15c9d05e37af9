"""Work on streams of accel's own, and handing results to the caller's stream. No other file names a stream.

A result is made on a stream of accel's own, followed by an event. The caller's current stream waits for that event;
the host does not wait. Threads that work at the same time have streams of their own, so that one's copies to the device
run while the device computes for another. Each stream has its own memory in torch's allocator, so a device has at most
``MOST`` of them, however many threads there are: one more waits. The host has no streams, so there all this does
nothing.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

import torch

from accel.runtime import picture_memory
from accel.system import fork

Result = TypeVar("Result")

MOST = 4  # for each device: the launchers' (``prefetch``), and one for threads that compute in place

_WITHOUT = "cpu", "meta"  # types of devices that have no streams

_side: dict[Any, Any] = {}  # by device: ``_Streams``; by device and thread: the stream of its ``beside``


class _Streams:
    """A device's streams, lent to one thread at a time; each thread gets the one that it had, if that is free."""

    def __init__(self, made: Callable[[], Any]) -> None:
        self._made, self._turns, self._lock = made, SimpleQueue[None](), fork.Lock()
        for _ in range(MOST):
            self._turns.put(None)
        self._free: list[tuple[int, Any]] = [(0, None)] * MOST  # the last user, and the stream once it is made

    @contextmanager
    def lent(self) -> Iterator[Any]:
        thread = threading.get_ident()
        self._turns.get()
        with self._lock:
            own = next((number for number, (user, _) in enumerate(self._free) if user == thread), 0)
            _, stream = self._free.pop(own)
        try:
            stream = stream or self._made()
            yield stream
        finally:
            with self._lock:
                self._free.append((thread, stream))
            self._turns.put(None)


def aside(device: torch.device, work: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, Any]:
    """Run ``work`` with a stream of accel's own as the current one of ``device``.

    Returns:
        its result, and the event after which that is complete (None on the host).
    """
    module = _module(device)
    if module is None:
        return work(), None
    streams = _side.get(device) or _side.setdefault(device, _Streams(partial(module.Stream, device)))
    with streams.lent() as stream, module.stream(stream):
        result = work()
        return result, stream.record_event()


def beside(device: torch.device, work: Callable[[], Result]) -> Result:
    """Run ``work`` on a stream beside the current one, behind what that has by now and before what it gets later."""
    module = _module(device)
    assert module is not None
    key, current = (device, threading.get_ident()), module.current_stream(device)
    stream = _side.get(key) or _side.setdefault(key, module.Stream(device))
    stream.wait_stream(current)
    try:
        with module.stream(stream):
            return work()
    finally:
        current.wait_stream(stream)


def arrive(result: torch.Tensor, event: Any) -> torch.Tensor:
    """Make ``result`` usable on the caller's current stream of its device, which waits for ``event``; return it.

    Its memory, which belongs to accel's stream, is reused only after the caller's stream has used it.
    """
    if event is not None:
        stream = _module(result.device).current_stream(result.device)
        stream.wait_event(event)
        result.record_stream(stream)
    return result


def current(stream: Any) -> AbstractContextManager[Any]:
    """A context in which a stream of the user's is the thread's current one; None: the one that is."""
    return nullcontext() if stream is None else _module(stream.device).stream(stream)


def transferred(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy on ``device``, made on the current stream from page-locked memory; on the host the tensor itself."""
    if _module(device) is None or tensor.device == device:
        return tensor.to(device)
    locked = tensor.pin_memory() if device.type == "cuda" and tensor.device.type == "cpu" else tensor
    return locked.to(device, non_blocking=locked is not tensor)  # memory that is the user's may be written again


def synchronize(device: torch.device) -> None:
    """Wait until a device has done all that was queued on any stream."""
    if (module := _module(device)) is not None:
        module.synchronize(device)


def runs_ahead(device: torch.device) -> bool:
    """Whether work on a device is queued on streams while the host goes on; not so on the host itself."""
    return _module(device) is not None


def mark() -> Any:
    """An event behind all work on this thread's current stream of the GPU; None if no GPU is in use.

    It is only queried (``query``), never waited for.
    """
    if not (torch.cuda.is_initialized() and usable(torch.device("cuda"))):
        return None
    event = torch.cuda.Event()
    event.record()
    return event


def current_index(kind: str) -> int:
    """The number of this thread's current device of a type; 0 if none was used yet, as asking would initialize it."""
    module = _module(torch.device(kind))
    return int(module.current_device()) if getattr(module, "is_initialized", bool)() else 0


def indexed(device: torch.device) -> torch.device:
    """The device with an index, by default that of the current device of its type.

    Raises:
        RuntimeError: there is no such device.
    """
    index: Any = device.index  # an int according to torch's stubs
    if device.type in _WITHOUT:
        return device
    module = torch.get_device_module(device)
    if index is None:
        return torch.device(device.type, module.current_device())
    count = getattr(module, "device_count", lambda: None)()
    if count is not None and index >= count:
        raise RuntimeError(f"there is no device {device}: torch finds {count} of type {device.type!r}")
    return device


def memory(device: torch.device) -> int:
    """The bytes of memory of a device that is in use; 0 if torch does not know."""
    module = _module(device)
    if module is None:
        return picture_memory.memory()
    properties = getattr(module, "get_device_properties", lambda _: None)(device)
    return int(getattr(properties, "total_memory", 0))


def usable(device: torch.device) -> bool:
    """Whether this process may use the device; a forked child may not if its parent did."""
    in_bad_fork = getattr(torch.get_device_module(device), "_is_in_bad_fork", None)
    return in_bad_fork is None or not in_bad_fork()


def _module(device: torch.device) -> Any:
    """torch's module for the device's type; None if it has no streams."""
    return None if device.type in _WITHOUT else torch.get_device_module(device)


def _leave() -> None:
    if _side:  # what else of the parent's GPU is garbage in a cycle here must not be collected either
        gc.freeze()
    fork.leave_to_parent(_side.copy())
    _side.clear()


fork.register(in_child=_leave)
