"""A device whose streams run as late as they may, and whose allocator overwrites memory as soon as it may.

It stands in for a GPU with the host's kernels. Work queued on a stream (copies, fills, launches, waits) runs, in the
stream's order, only when something waits for it. Its memory is the host's, on ``cpu:0``; a block that is dropped is
reused as by torch's caching allocator: on the stream on which it was made, after the work queued there by then, and
that on the streams it was recorded on. Then it is overwritten at once.
"""

from __future__ import annotations

import ctypes
import math
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from accel.backends.cuda import host

DEVICE = torch.device("cpu", 0)
SPOILT = 0xEE


class Event:
    """A point in a stream."""

    def __init__(self, stream: DeferredStream) -> None:
        self.stream, self.place = stream, stream.queued

    def query(self) -> bool:
        return self.stream.done >= self.place

    def synchronize(self) -> None:
        self.stream.run_to(self.place)


class DeferredStream:
    def __init__(self, device: Any) -> None:
        self.device = device
        self.queue: deque[Callable[[], None]] = deque()
        self.queued = self.done = 0

    def put(self, work: Callable[[], None]) -> None:
        self.queue.append(work)
        self.queued += 1

    def run_to(self, place: int) -> None:
        while self.done < place and self.queue:
            try:
                self.queue.popleft()()
            finally:  # also of Ctrl-C
                self.done += 1
            self.device.spoil()

    def record_event(self) -> Event:
        return Event(self)

    def wait_event(self, event: Event) -> None:
        self.put(event.synchronize)

    def wait_stream(self, stream: DeferredStream) -> None:
        self.wait_event(stream.record_event())

    def read(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Queue a read of a tensor; the returned list has its values once that has run. It keeps no memory alive."""
        found: list[torch.Tensor] = []
        pointer, like = tensor.data_ptr(), tensor
        size, stride, dtype, offset = like.size(), like.stride(), like.dtype, like.storage_offset()
        count = like.untyped_storage().nbytes()
        block = self.device.block_at(pointer)

        def read() -> None:
            storage = torch.from_numpy(block.copy())[:count].view(dtype)
            found.append(storage.as_strided(size, stride, offset))

        self.put(read)
        return found


class DeferredStreams:
    """Replaces torch's device module in ``accel.runtime.streams``: work runs when it is waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._local = threading.local()
        self._default = DeferredStream(self)

    def __call__(self, device: torch.device) -> DeferredStreams | None:
        return self if device.type == "cpu" else None

    def Stream(self, device: torch.device) -> DeferredStream:
        return DeferredStream(self)

    @contextmanager
    def stream(self, stream: DeferredStream) -> Iterator[None]:
        before, self._local.stream = self.current_stream(), stream
        try:
            yield
        finally:
            self._local.stream = before

    def current_stream(self, device: Any = None) -> DeferredStream:
        found: DeferredStream = getattr(self._local, "stream", self._default)
        return found

    def spoil(self) -> None:
        """Called after each piece of work."""


class DeferredDevice(DeferredStreams, host.HostDevice):
    """See ``accel.backends.cuda.device.Device``."""

    def __init__(self) -> None:
        super().__init__()
        self.torch_device = DEVICE
        self._blocks: dict[int, Any] = {}  # by address: all memory ever allocated, so that deferred work can read it
        self._dropped: list[tuple[list[Event], Any]] = []
        self._recorded: dict[int, set[DeferredStream]] = {}
        self.launched = 0

    # -- the backend's device

    @contextmanager
    def enter(self) -> Iterator[None]:
        with _Queued(self):
            yield

    def empty(self, shape: Sequence[int], dtype: torch.dtype = torch.uint8) -> torch.Tensor:
        count = math.prod(shape) * dtype.itemsize
        return self.allocate(count)[:count].view(dtype).view(shape)

    def pinned(self, size: int) -> torch.Tensor:
        return torch.full((size,), SPOILT, dtype=torch.uint8, device="cpu")

    def mark(self) -> Event:
        return self.current_stream().record_event()

    def launch(self, kernel: str, blocks: int, items: int, owners: int) -> None:
        self.launched += 1
        run = super().launch
        self.current_stream().put(lambda: run(kernel, blocks, items, owners))

    # -- memory

    def allocate(self, size: int) -> torch.Tensor:
        block = np.full(max(size, 1), SPOILT, np.uint8)
        handed = block[:]
        address = block.ctypes.data
        self._blocks[address] = block
        self._recorded[address] = {self.current_stream()}
        weakref.finalize(handed, self._drop, address)
        return torch.from_numpy(handed)

    def block_at(self, pointer: int) -> Any:
        """The block of memory that contains an address; None if it is none of the device's."""
        for address, block in self._blocks.items():
            if address <= pointer < address + len(block):
                return block
        return None

    def record(self, tensor: torch.Tensor, stream: DeferredStream) -> None:
        """``Tensor.record_stream``."""
        self._recorded[self.block_at(tensor.data_ptr()).ctypes.data].add(stream)

    def _drop(self, address: int) -> None:
        events = [stream.record_event() for stream in self._recorded.pop(address)]
        self._dropped.append((events, self._blocks[address]))
        self.spoil()

    def spoil(self) -> None:
        """Overwrite dropped blocks that may not be read any more."""
        waiting, self._dropped = self._dropped, []
        for events, block in waiting:
            if all(event.query() for event in events):
                block[:] = SPOILT
            else:
                self._dropped.append((events, block))


class _Queued(TorchDispatchMode):
    """A mode in which torch's operations on the device's tensors are queued on the current stream."""

    def __init__(self, device: DeferredDevice) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = device

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = function._schema.name
        ours = [each for each in args if isinstance(each, torch.Tensor) and self._is_ours(each)]
        if not ours or function.is_view:
            return function(*args, **kwargs)
        stream = self._device.current_stream()
        if name in ("aten::copy_", "aten::zero_", "aten::fill_"):
            target, *rest = args
            if rest and isinstance(rest[0], torch.Tensor) and not self._is_ours(rest[0]):
                later = kwargs.get("non_blocking") or (len(rest) > 1 and rest[1])
                rest[0] = rest[0] if later else rest[0].clone()  # the host waits until it is read
            stream.put(_weakly(function, target, rest, self._is_ours))
            return target
        if name in ("aten::_to_copy", "aten::clone"):  # to the host, which waits
            stream.record_event().synchronize()
            return function(*args, **kwargs)
        raise AssertionError(f"{name} on the device's tensors")

    def _is_ours(self, tensor: torch.Tensor) -> bool:
        return self._device.block_at(tensor.data_ptr()) is not None


def _weakly(
    function: Any, target: torch.Tensor, rest: list[Any], ours: Callable[[torch.Tensor], bool]
) -> Callable[[], None]:
    """The operation on the same memory, without keeping that alive."""
    aliases = [_alias(each) if isinstance(each, torch.Tensor) and ours(each) else each for each in (target, *rest)]

    def work() -> None:
        with torch.utils._python_dispatch._disable_current_modes():
            function(*aliases)

    return work


def _alias(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.numel() == 0:
        return tensor
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    memory = (ctypes.c_uint8 * (span * tensor.element_size())).from_address(tensor.data_ptr())
    flat = torch.frombuffer(memory, dtype=torch.uint8).view(tensor.dtype)
    return flat.as_strided(tensor.size(), tensor.stride())
