"""Estimating the least and the most seconds on a GPU from counts: rates, latencies and clocks. Needs no GPU.

Rates are those of NVIDIA's table "Throughput of Native Arithmetic Instructions" for compute capability 9.0 (``RATES``),
names of pipes those of Nsight Compute. Figures that NVIDIA does not publish are assumptions, all of which are here.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.backends.cuda import compile, host
from accel.backends.cuda.descriptors import THREADS

Floats = npt.NDArray[np.float64]
Range = Floats
"""Two figures: the least and the most."""

SCHEDULERS, WARPS = 4, THREADS // 32  # schedulers of a multiprocessor; warps of a block
SHARED = {"sm_80": 164 << 10, "sm_90": 228 << 10, "sm_100": 228 << 10}
"""Bytes of shared memory of a multiprocessor, by architecture."""
ARCH = "sm_90"


class Kind(NamedTuple):
    """Instructions that a pipe treats alike, with the least and the most cycles of a scheduler.

    Attributes:
        busy: the time that a warp's instruction keeps the pipe busy; the most includes a few bank or line conflicts.
        waits: the time until its result is available.
    """

    pipe: str
    mnemonics: str
    busy: tuple[float, float]
    waits: tuple[float, float]


KINDS = (
    Kind("FMA", "IMAD|IMUL", (2, 2), (4, 5)),
    Kind("FMA", "FFMA|FADD|FMUL|HFMA2", (1, 1), (4, 5)),
    Kind("LSU", "LDS|ATOMS|SHFL|LDC|S2R|R2UR|S2UR", (4, 8), (23, 33)),  # shared memory, constants
    Kind("LSU", "LDG|LD|ATOMG?", (4, 8), (33, 70)),  # most hit the first-level cache, or several are under way
    Kind("LSU", "STS|STG?|RED", (4, 8), (2, 4)),  # no instruction waits for them
    Kind("XU", "I2F|F2I|MUFU|POPC|FLO|BREV|REDUX|UFLO", (8, 8), (18, 25)),
    Kind("CBU", "BRA|BRX|BSSY|BSYNC|BREAK|EXIT|CALL|RET|WARPSYNC|YIELD", (2, 2), (5, 8)),
    Kind("ADU", "BAR", (2, 4), (20, 40)),
    Kind("uniform", "U[A-Z0-9]+", (2, 2), (6, 12)),
    Kind("ALU", "[A-Z0-9]+", (2, 2), (4, 5)),
)
"""An instruction is of the first kind whose mnemonics match. ptxas's moves and additions as IMAD use the FMA pipe."""
RATES = {
    **dict.fromkeys(("IADD3", "LOP3", "SHF", "ISETP", "IMNMX", "IMAD"), 64),
    **dict.fromkeys(("FFMA", "FADD", "FMUL"), 128),
    **dict.fromkeys(("I2F", "F2I", "POPC", "FLO", "MUFU"), 16),
    "SHFL": 32,
}
"""Results a cycle and multiprocessor by NVIDIA, as quoted by others from the CUDA C++ Programming Guide 12.6, table 4,
and the Best Practices Guide 13, 12.1.1: for 9.0, except IMAD, POPC, FLO and MUFU, for 8.9 and 12.0. 8.0 has 64 for
FFMA, else the same; for 10.0 only integers and FFMA are quoted, the same. Nothing is said of other loads, stores,
branches and barriers."""
PIPES = tuple(dict.fromkeys(kind.pipe for kind in KINDS))
_BUSY, _WAITS = (np.array([getattr(kind, what) for kind in KINDS], np.float64) for what in ("busy", "waits"))
_OF_PIPE = np.array([[kind.pipe == pipe for pipe in PIPES] for kind in KINDS], np.float64)
WAITED = np.array([0.5, 0.8])  # the part of a warp's instructions that wait for the one before
AT_WORK = np.array([1, 0.5])  # the part of the possible warps at work: others have ended, or wait at a barrier
LAUNCH = np.array([2e-6, 4e-6])  # seconds from a kernel's end to the next one's start, with the ramp up and down
UPLOAD = np.array([55e9, 40e9])  # bytes a second, of the 63e9 of 16 lanes of PCIe 5


class Gpu(NamedTuple):
    multiprocessors: int
    hertz: Range  # the highest clock; under load
    bandwidth: Range  # bytes a second, of 4.8e12 and 3.35e12


GPUS = {
    "H200": Gpu(132, np.array([1.98e9, 1.7e9]), np.array([4.4e12, 3.6e12])),
    "H100": Gpu(132, np.array([1.98e9, 1.7e9]), np.array([3.0e12, 2.5e12])),
}
"""The GPUs predicted for, of form SXM; both have the same multiprocessors."""


@cache
def kind_of(mnemonic: str) -> int:
    """The number of a mnemonic's kind."""
    return next(number for number, kind in enumerate(KINDS) if re.fullmatch(kind.mnemonics, mnemonic))


def pipes(mix: Floats) -> Floats:
    """Instructions by pipe, from those by kind."""
    found: Floats = mix @ _OF_PIPE
    return found


def bound(mix: Floats) -> str:
    """The pipe (or "issue") that is busy longest with these instructions."""
    busy = np.append(mix @ (_BUSY[:, :1] * _OF_PIPE), mix.sum())
    return (*PIPES, "issue")[int(busy.argmax())]


def seconds(gpu: Gpu, mix: Floats, kernel: str, blocks: int, moved: float, chain: Floats | None = None) -> Range:
    """The time of a kernel: at least that of the busiest pipe or of waiting, at most the sum of both.

    Args:
        mix: instructions of all warps, by kind.
        blocks: its number of blocks.
        moved: bytes of device memory that must be read and written.
        chain: instructions of the longest warp, if it has far more than others.
    """
    schedulers = gpu.multiprocessors * SCHEDULERS
    busy = np.maximum((mix @ (_BUSY[:, :, None] * _OF_PIPE[:, None]).swapaxes(0, 1)).max(1), mix.sum()) / schedulers
    at_once = np.minimum(blocks, resident(kernel) * gpu.multiprocessors * AT_WORK)
    waiting = mix @ _WAITS * WAITED / (WARPS * at_once)
    cycles = np.array([max(busy[0], waiting[0]), busy[1] + waiting[1]])
    if chain is not None:
        cycles = np.maximum(cycles, chain @ _WAITS * WAITED)
    found: Range = LAUNCH + np.maximum(cycles / gpu.hertz, moved / gpu.bandwidth)
    return found


def resident(kernel: str) -> int:
    """The number of blocks of one of the kernels that fit on a multiprocessor."""
    used = _usages(compile.unit_of(kernel))[kernel]
    return blocks_at_once(ARCH, used.registers, used.shared)


@cache
def _usages(unit: str) -> dict[str, compile.Usage]:
    return {each.kernel: each for each in compile.build(unit, ARCH)[1]}


def blocks_at_once(arch: str, registers: int, shared: int) -> int:
    """The number of blocks of a kernel that fit on a multiprocessor, by CUDA's own header.

    Raises:
        FileNotFoundError: the header is missing.
    """
    header = toolkit_file("include/cuda_occupancy.h")
    count = library("occupancy.cpp", "-I", str(header.parent)).blocks_at_once
    return int(count(int(arch[3:-1]), SHARED[arch], THREADS, registers, shared))


@cache
def library(source: str, *options: str) -> Any:
    """Compile a file beside this one for the host, and load it."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "library.so"
        file.write_bytes(host._compile(Path(__file__).with_name(source), (*host.FLAGS, *options)))
        return ctypes.CDLL(str(file))


@cache
def toolkit_file(name: str) -> Path:
    """A file of CUDA's toolkit, or of the part of it in Triton.

    Raises:
        FileNotFoundError: it is missing.
    """
    compiler, spec = shutil.which("nvdisasm"), find_spec("triton")
    roots = [Path(compiler).resolve().parents[1]] if compiler else []
    roots += [Path(spec.origin).parent / "backends" / "nvidia"] if spec and spec.origin else []
    for root in roots:
        if (root / name).exists():
            return root / name
    raise FileNotFoundError(f"{name} is missing: pip install triton, which has it, or CUDA's toolkit")
