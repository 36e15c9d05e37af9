"""A device of the cuda backend that interprets the kernels' PTX, on host memory of which every piece is known."""

import math
import threading
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain
from typing import Any
from unittest import mock

import numpy as np
import torch

from accel.backends.cuda import CudaBackend, backend, compile, host
from accel.backends.cuda.declarations import SOURCES
from rig.pieces import divided
from rig.ptx.machine import Machine, Program
from rig.ptx.memory import GlobalMemory
from rig.ptx.parse import parse

ARCH = "compute_90"


class PtxDevice(host.HostDevice):
    """See ``accel.backends.cuda.device.Device``. Memory is filled with garbage, and has exactly the size asked for."""

    def __init__(self, seed: int = 0, at_once: int = 32, arch: str = ARCH, shifts: bool = False) -> None:
        super().__init__()
        self.rng = np.random.default_rng(seed)
        self.machine, self._arch = Machine(self.rng, at_once, shifts), arch
        self.ran: Counter[str] = Counter()
        """Warp instructions by kernel, of all launches so far."""
        self._sizes: dict[int, int] = {}
        self._known: dict[int, list[tuple[int, int]]] = {}
        self._lock = threading.RLock()

    def empty(self, shape: Sequence[int], dtype: torch.dtype = torch.uint8) -> torch.Tensor:
        return self.allocate(math.prod(shape) * dtype.itemsize).view(dtype).view(shape)

    def pinned(self, size: int) -> torch.Tensor:
        """Host memory that no kernel may touch."""
        return torch.from_numpy(np.frombuffer(bytearray(self.rng.bytes(size)), np.uint8))

    def prepare(self) -> None:
        """Do nothing, as programs are made when first used."""

    def launch(self, kernel: str, blocks: int, items: int, owners: int) -> None:
        self.run(program(kernel, self._arch), blocks, items, owners)

    def run(self, made: Program, blocks: int, items: int, owners: int) -> None:
        """Run any program with the same parameters as the backend's."""
        before = made.warp_instructions
        with self._lock:
            known = GlobalMemory([*chain(*self._known.values()), *made.allocations])
            parameters = dict(zip(made.kernel.parameters, (items, owners), strict=True))
            self.machine.launch(made, blocks, parameters, known)
        self.ran[made.name] += made.warp_instructions - before

    def allocate(self, size: int) -> torch.Tensor:
        """Memory full of garbage, at an address that is an odd multiple of 64."""
        block = np.frombuffer(bytearray(self.rng.bytes(size + 192)), np.uint8)
        start = -block.ctypes.data % 128 + 64
        handed = block[start : start + size]
        address = handed.ctypes.data
        self._sizes[address] = size
        self._known[address] = [(address, size)]
        weakref.finalize(handed, self._forget, address)
        return torch.from_numpy(handed)

    def divide(self, address: int, size: int, pieces: list[tuple[int, int]]) -> None:
        """Allow only these pieces, offsets and sizes, of the allocation at ``address``."""
        if not address:  # torch's, of a tensor without elements
            return
        end = address + self._sizes[address]
        self._known[address] = [(address + offset, size) for offset, size in pieces]
        assert all(address <= start and start + size <= end for start, size in self._known[address])

    def _forget(self, address: int) -> None:
        del self._known[address], self._sizes[address]


@contextmanager
def installed(device: PtxDevice) -> Iterator[None]:
    """A context in which ``device="cpu"`` of the cuda backend means this device.

    Its decoder is not tried first, as its results are what is tested.
    """
    with mock.patch.object(host, "HostDevice", return_value=device):
        engine = backend._Engine(torch.device("cpu"))
    engine.jpeg._agreed = True
    with mock.patch.object(CudaBackend, "_engine", return_value=engine), divided(device.divide):
        yield


def program(kernel: str, arch: str = ARCH) -> Program:
    """A kernel of the backend, by its name; always the same object, which counts what ran."""
    return _program(kernel, arch)


@cache
def _program(kernel: str, arch: str) -> Program:
    return Program(parse(ptx_of_unit(compile.unit_of(kernel), arch)), kernel)


@cache
def ptx_of_unit(unit: str, arch: str = ARCH) -> str:
    """The PTX that NVRTC makes of a translation unit of the backend, with the options of its own builds."""
    return ptx_of_source((SOURCES / f"{unit}.cu").read_text(), f"{SOURCES / unit}.cu", lineinfo=True, arch=arch)


def ptx_of_source(source: str, name: str, **changed: Any) -> str:
    """The PTX of any source; ``changed``: options that differ from the backend's, by names in ``ProgramOptions``."""
    chosen = compile.options(name, ARCH)
    for option, value in changed.items():
        setattr(chosen, option, value)
    return compile.ptx(source, name, chosen).decode()
