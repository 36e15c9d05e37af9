"""Work on streams of accel's own, and handing results to the caller's stream. No other file names a stream.

A result is made on a stream of accel's own, followed by an event. The caller's current stream waits for that event;
the host does not wait. Each thread has its own stream, so that one's copies to the device run while the device computes
for another. The host has no streams, so there all this does nothing.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from accel.runtime import picture_memory
from accel.system import fork

Result = TypeVar("Result")

_side: dict[tuple[torch.device, int, str], Any] = {}


def aside(device: torch.device, work: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, Any]:
    """Run ``work`` with this thread's own stream as the current one of ``device``.

    Returns:
        its result, and the event after which that is complete (None on the host).
    """
    module = _module(device)
    if module is None:
        return work(), None
    stream = _own(module, device, "aside")
    with module.stream(stream):
        result = work()
        return result, stream.record_event()


def beside(device: torch.device, work: Callable[[], Result]) -> Result:
    """Run ``work`` on a stream beside the current one, behind what that has by now and before what it gets later."""
    module = _module(device)
    assert module is not None
    stream, current = _own(module, device, "beside"), module.current_stream(device)
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


def transferred(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy on ``device``, made on the current stream from page-locked memory; on the host the tensor itself."""
    if _module(device) is None or tensor.device == device:
        return tensor.to(device)
    locked = tensor.pin_memory() if device.type == "cuda" and tensor.device.type == "cpu" else tensor
    return locked.to(device, non_blocking=locked is not tensor)  # memory that is the user's may be written again


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


def indexed(device: torch.device) -> torch.device:
    """The device with an index, by default that of the current device of its type."""
    index: Any = device.index  # an int according to torch's stubs
    if index is not None or device.type == "cpu":
        return device
    return torch.device(device.type, torch.get_device_module(device).current_device())


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


def _own(module: Any, device: torch.device, purpose: str) -> Any:
    """This thread's own stream for a purpose: each waits for others in its own way, so none uses another's memory."""
    key = device, threading.get_ident(), purpose
    return _side.get(key) or _side.setdefault(key, module.Stream(device))


def _module(device: torch.device) -> Any:
    """torch's module for the device's type; None for the host, which has no streams."""
    return None if device.type == "cpu" else torch.get_device_module(device)


def _leave() -> None:
    if _side:  # what else of the parent's GPU is garbage in a cycle here must not be collected either
        gc.freeze()
    fork.leave_to_parent(_side.copy())
    _side.clear()


fork.register(in_child=_leave)
