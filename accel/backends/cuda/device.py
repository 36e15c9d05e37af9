"""Devices that schedules run on: a GPU, by torch's memory and streams and cuda.core's launches."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from accel.backends.cuda import compile, driver
from accel.backends.cuda.descriptors import THREADS
from accel.backends.cuda.driver import Call
from accel.codec.jpeg import SOURCES
from accel.errors import BackendUnavailable
from accel.system import counters, fork
from accel.system.imports import LazyModule
from accel.system.native import units

_core = LazyModule("cuda.core")

UNIT = units.Unit("launches", "backends/cuda/submit_launches.py", *SOURCES, seconds=0.5)
_submit = UNIT.function("backends.cuda.submit_launches", "submit_launches", "u8[2]w int u8[1] u8[1] int int")

Launches = npt.NDArray[np.uint64]
"""uint64 [n, 4]: a kernel's number (``compile.KERNELS``), its blocks, the addresses of items and owners."""

ROOM = 2  # spare rows at the end of ``Work.calls``


class Work(NamedTuple):
    """Copies and launches to be queued on a device.

    Attributes:
        memory: the device memory, uint8[...], that all of it uses.
        calls: uint64 [moves + launches + ROOM, 4]. A move is a driver's ``Call``, target, source (or the byte to
            fill with), and the number of bytes. The last move is queued after the launches, all others before.
        moves: the number of moves.
    """

    memory: torch.Tensor
    calls: npt.NDArray[np.uint64]
    moves: int

    @property
    def launches(self) -> Launches:
        return self.calls[self.moves : -ROOM]


class Mark(Protocol):
    """A point in a stream, such as an event."""

    def query(self) -> bool:
        """Whether all work before it is done."""

    def synchronize(self) -> None:
        """Wait until all work before it is done."""


class Device:
    """Memory, launches and marks on the current stream of one device; here, of a host, which does not queue.

    Attributes:
        torch_device: torch's device.
    """

    def __init__(self, torch_device: torch.device) -> None:
        self.torch_device = torch_device

    def enter(self) -> AbstractContextManager[Any]:
        """A context in which it is this thread's current device."""
        return _ENTERED

    def prepare(self) -> None:
        """Compile and load all kernels."""
        raise NotImplementedError

    def empty(self, shape: Sequence[int], dtype: torch.dtype = torch.uint8) -> torch.Tensor:
        """Uninitialized memory, also under deterministic algorithms, where ``torch.empty`` would fill it."""
        if not torch.are_deterministic_algorithms_enabled():
            return torch.empty(shape, dtype=dtype, device=self.torch_device)
        storage = torch.UntypedStorage(math.prod(shape) * dtype.itemsize, device=self.torch_device)
        made: Any = torch.empty(0, dtype=dtype, device=self.torch_device)  # torch's stubs want strides as well
        return made.set_(storage, 0, torch.Size(shape))  # type: ignore[no-any-return]

    def scratch(self, size: int) -> torch.Tensor:
        """At least ``size`` bytes, rounded so that similar sizes are equal, and torch's allocator can reuse blocks."""
        step = 1 << max(size.bit_length() - 4, 0)
        return self.empty((-(-size // step) * step,))

    def pinned(self, size: int) -> torch.Tensor:
        """Host memory, uint8[size], that the device can copy from by itself."""
        return torch.empty(size, dtype=torch.uint8, device="cpu")

    def trim(self) -> None:
        """Return unused pinned memory, which torch would keep for ever, to the system."""

    def lock(self, address: int, size: int) -> Callable[[], object] | None:
        """Lock pages of host memory, so that the device can copy from them by itself; return the undoing, or None."""
        return lambda: None

    def mark(self) -> Mark | None:
        """A mark after all queued work; None if that is done already."""
        return None

    def launch(self, kernel: str, blocks: int, items: int, owners: int) -> None:
        """Queue ``blocks`` blocks of a kernel, given the addresses of items and owners."""
        raise NotImplementedError

    def launch_all(self, launches: Launches) -> None:
        """Queue launches in order."""
        for kernel, blocks, items, owners in launches.tolist():
            self.launch(compile.KERNELS[kernel], blocks, items, owners)

    def submit(self, work: Work) -> None:
        """Queue copies and launches. Host memory that they use must stay until a later mark is reached."""
        *before, behind = work.calls[: work.moves].tolist()
        for move in before:
            _queue(work.memory, *move)
        self.launch_all(work.launches)
        _queue(work.memory, *behind)

    def free_memory(self) -> int:
        """The approximate number of free bytes."""
        raise NotImplementedError


class CudaDevice(Device):
    """One GPU. Work is queued on torch's current stream of the calling thread."""

    def __init__(self, device: torch.device) -> None:
        assert device.index is not None
        super().__init__(device)
        self._kernels: dict[str, Any] = {}
        self._handles = np.zeros(0, np.uint64)  # of ``compile.KERNELS``
        self._thread = threading.local()
        self._streams: dict[int, Any] = {}  # cuda.core's, by torch's handles; torch never destroys its streams

    def enter(self) -> AbstractContextManager[Any]:
        return torch.cuda.device(self.torch_device)

    def prepare(self) -> None:
        with _lock:
            found = _kernels(compile.arch_of(*torch.cuda.get_device_capability(self.torch_device.index)))
            self._handles = np.array([int(found[name].handle) for name in compile.KERNELS], np.uint64)
            self._kernels = found

    def pinned(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=True)

    def trim(self) -> None:
        torch._C._host_emptyCache()

    def lock(self, address: int, size: int) -> Callable[[], object] | None:
        error = self._with_context(driver.lock, address, size)
        if error:
            counters.fallback(f"the driver does not lock the workers' memory (error {error}); batches were copied")
            return None
        return partial(self._unlock, address)

    def _unlock(self, address: int) -> None:
        if error := self._with_context(driver.unlock, address):
            counters.fallback(f"the driver does not let go of the workers' memory (error {error})")

    def _with_context(self, function: Callable[..., int], *arguments: int) -> int:
        with self.enter():
            torch.cuda.mem_get_info(self.torch_device)  # after this, the thread has a context
            return function(*arguments)

    def mark(self) -> Mark:
        event = torch.cuda.Event(blocking=True)  # a thread that waits for it sleeps
        event.record()
        return event

    def launch(self, kernel: str, blocks: int, items: int, owners: int) -> None:
        if not self._kernels:
            self.prepare()
        handle = torch.cuda.current_stream().cuda_stream
        stream = self._streams.get(handle)
        if stream is None:
            stream = self._streams[handle] = _core.Stream.from_handle(handle)  # which stays torch's
        _core.launch(stream, _core.LaunchConfig(grid=blocks, block=THREADS), self._kernels[kernel], items, owners)

    def submit(self, work: Work) -> None:
        """Queue copies and launches in one call without the GIL.

        Raises:
            RuntimeError: the driver refuses a copy. A launch that it refuses is tried again by cuda.core, which raises.
        """
        if driver.functions() is None:
            super().submit(work)
            return
        done, error = self._queued(work)
        first = work.moves - 1
        if first <= done < first + len(work.launches):
            self.launch_all(work.launches[done - first :])
            work = Work(work.memory, work.calls[[first, -2, -1]], 1)
            done, error = self._queued(work)
        if done < len(work.calls) - ROOM:
            raise RuntimeError(f"the driver refuses to copy between {self.torch_device} and the host (error {error})")

    def _queued(self, work: Work) -> tuple[int, int]:
        if not self._kernels:
            self.prepare()
        if not hasattr(self._thread, "has_context"):  # the thread may not have a context yet
            torch.cuda.mem_get_info(self.torch_device)
            self._thread.has_context = True
        stream = torch.cuda.current_stream().cuda_stream
        return queued(work, self._handles, driver.functions(), stream)

    def free_memory(self) -> int:
        free, _ = torch.cuda.mem_get_info(self.torch_device)
        unused = torch.cuda.memory_reserved(self.torch_device) - torch.cuda.memory_allocated(self.torch_device)
        return free + unused


def _queue(memory: torch.Tensor, call: int, target: int, source: int, size: int) -> None:
    """Queue a move by torch."""
    if size:
        on_device = (source if call == Call.TO_HOST else target) - memory.data_ptr()
        part = memory[on_device : on_device + size]
        if call == Call.FILL:
            part.fill_(source)
        elif call == Call.TO_HOST:
            _at(target, size).copy_(part, non_blocking=True)
        else:
            part.copy_(_at(source, size), non_blocking=True)


def _at(address: int, size: int) -> torch.Tensor:
    """Host memory as a tensor."""
    return torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=torch.uint8)


def queued(work: Work, kernels: npt.NDArray[np.uint64], functions: Any, stream: int) -> tuple[int, int]:
    """Queue work by the driver's ``functions``; return how many moves and launches were queued, and the error or 0."""
    done = _submit(work.calls, work.moves, kernels, functions, stream, THREADS)
    return done, int(work.calls[-1, 0]) if done < len(work.calls) - ROOM else 0


_ENTERED = nullcontext()
_lock = fork.Lock()


@cache
def _kernels(arch: str) -> dict[str, Any]:
    """Load all kernels, for every device of an architecture; return them by name.

    Raises:
        BackendUnavailable: they cannot be compiled, or the driver refuses them.
    """
    with ThreadPoolExecutor(len(compile.UNITS)) as threads:  # NVRTC takes seconds for some, and releases the GIL
        cubins = list(threads.map(partial(compile.cubin, arch=arch), compile.UNITS))
    load = _core.ObjectCode.from_ptx if compile.is_ptx(arch) else _core.ObjectCode.from_cubin
    found = {}
    for (unit, names), cubin in zip(compile.UNITS.items(), cubins, strict=True):
        code = load(cubin, name=unit)
        try:
            found.update({name: code.get_kernel(name) for name in names})
        except Exception as error:  # one of cuda.core's
            raise BackendUnavailable(f"the driver refuses {unit}'s kernels for {arch}: {error}") from error
    return found
