"""The backend's device with the kernels' PTX in it: the host's memory, of which every piece is known."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from accel.backends.cuda import compile, host

from . import nvrtc
from .machine import Machine, Program
from .memory import GlobalMemory
from .parse import parse


class PtxDevice(host.HostDevice):
    """See ``accel.backends.cuda.device.Device``. Memory begins as garbage, and ends where it was asked to end."""

    def __init__(self, seed: int = 0, together: int = 32, arch: str = nvrtc.ARCH, shifts: bool = False) -> None:
        super().__init__()
        self.rng = np.random.default_rng(seed)
        self.machine, self._arch = Machine(self.rng, together, shifts), arch
        self.ran: Counter[str] = Counter()
        """Warp instructions by kernel, of all launches so far."""
        self._sizes: dict[int, int] = {}
        self._known: dict[int, list[tuple[int, int]]] = {}
        self._one = threading.RLock()

    @contextmanager
    def enter(self) -> Iterator[None]:
        with _Allocating(self):
            yield

    def pinned(self, size: int) -> torch.Tensor:
        """The host's: no kernel may touch it."""
        return torch.from_numpy(np.frombuffer(bytearray(self.rng.bytes(size)), np.uint8))

    def prepare(self) -> None:
        """Programs are made when they are asked for."""

    def launch(self, kernel: str, blocks: int, items: int, owners: int) -> None:
        self.run(program(kernel, self._arch), blocks, items, owners)

    def run(self, made: Program, blocks: int, items: int, owners: int) -> None:
        """Run any program that is launched as the backend's are."""
        before = made.warp_instructions
        with self._one:
            known = GlobalMemory([*chain(*self._known.values()), *made.allocations])
            parameters = dict(zip(made.kernel.parameters, (items, owners), strict=True))
            self.machine.launch(made, blocks, parameters, known)
        self.ran[made.name] += made.warp_instructions - before

    def allocate(self, size: int) -> torch.Tensor:
        """Garbage, at an address that is a multiple of 64 and of nothing more."""
        block = np.frombuffer(bytearray(self.rng.bytes(size + 192)), np.uint8)
        start = -block.ctypes.data % 128 + 64
        handed = block[start : start + size]
        address = handed.ctypes.data
        self._sizes[address] = size
        self._known[address] = [(address, size)]
        weakref.finalize(handed, self._forget, address)
        return torch.from_numpy(handed)

    def divide(self, address: int, pieces: list[tuple[int, int]]) -> None:
        """Of what was allocated there, only these may be touched: offsets and sizes."""
        if not address:  # torch's, of a tensor without elements
            return
        end = address + self._sizes[address]
        self._known[address] = [(address + offset, size) for offset, size in pieces]
        assert all(address <= start and start + size <= end for start, size in self._known[address])

    def _forget(self, address: int) -> None:
        del self._known[address], self._sizes[address]


def program(kernel: str, arch: str = nvrtc.ARCH) -> Program:
    """A kernel of the backend, by its name; always the same one, which counts."""
    return _program(kernel, arch)


@cache
def _program(kernel: str, arch: str) -> Program:
    unit = next(unit for unit, names in compile.UNITS.items() if kernel in names)
    return Program(parse(nvrtc.of_unit(unit, arch)), kernel)


class _Allocating(TorchDispatchMode):
    """What is allocated for the device, which torch calls a cpu, is its own."""

    def __init__(self, device: PtxDevice) -> None:
        super().__init__()
        self._device = device

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function._schema.name == "aten::empty" and kwargs.get("device"):
            dtype, size = kwargs.get("dtype") or torch.float32, tuple(args[0])
            return self._device.allocate(int(np.prod(size)) * dtype.itemsize).view(dtype).view(size)
        return function(*args, **kwargs)
