"""Running plans on the host: each image is decoded and emitted by one thread, straight into the batch."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import get_worker_info

from accel import fork
from accel.backend import Options
from accel.codec import decode
from accel.memory import Allocate
from accel.plan import Axis, Decode, Plan, Stage

Pixels = npt.NDArray[np.uint8]

_BITS = {1: (torch.uint8, np.uint8), 2: (torch.int16, np.uint16), 4: (torch.int32, np.uint32)}
_BITS[8] = (torch.int64, np.uint64)


@dataclass(frozen=True)
class CpuOptions(Options):
    """The cpu backend's options.

    Args:
        threads: how many threads share a batch outside DataLoader workers; None: one for each core that this
            process may use. A worker uses its own thread alone.
        decode: the JPEG decoder: "auto", or one of ``accel.codec.decode.ENGINES``.
    """

    threads: int | None = None
    decode: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threads is not None and (type(self.threads) is not int or self.threads < 1):
            raise ValueError(f"threads must be a positive int or None, got {self.threads!r}")
        if self.decode not in decode.ENGINES:
            raise ValueError(f"decode must be one of {', '.join(decode.ENGINES)}, got {self.decode!r}")


class CpuBackend:
    """Exact always: ``exact=False`` changes nothing here."""

    Options: ClassVar[type[Options]] = CpuOptions
    realises_in_workers: ClassVar[bool] = True
    auto_rank: ClassVar[int | None] = 100
    host: ClassVar[str] = "cpu"

    def __init__(self, options: CpuOptions) -> None:
        self.options = options
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        fork.register(in_child=self._forget_threads)

    @classmethod
    def unavailable(cls) -> str | None:
        if find_spec("numba") is None:
            return "numba is missing: pip install numba"
        return None

    def prepare(self) -> None:
        from . import kernels

        kernels.warm_up()
        decode.prepare(self.options.decode)

    def run(self, plan: Plan, allocate: Allocate) -> torch.Tensor:
        result = plan.empty(allocate)
        memory = result.permute(0, 2, 3, 1) if plan.interleaved else result
        torch_type, numpy_type = _BITS[plan.dtype.itemsize]
        target = memory.view(torch_type).numpy().view(numpy_type)
        of = plan.shape[0]
        if len(plan.decodes) == 1 or self.threads == 1:
            for wanted in plan.decodes:
                self._image(wanted, of, target, not plan.interleaved)
        else:
            tasks = [
                self._threads().submit(self._image, wanted, of, target, not plan.interleaved) for wanted in plan.decodes
            ]
            errors = [error for task in tasks if (error := task.exception()) is not None]
            if errors:
                raise errors[0]
        return result

    def describe(self, plan: Plan) -> list[str]:
        engines = sorted({decode.choose(wanted.source.header, self.options.decode) for wanted in plan.decodes})
        return [
            f"decoder: {', '.join(engines)} on the host, regions only",
            f"runs: one compiled pass per stage, on {self.threads} threads",
        ]

    @property
    def threads(self) -> int:
        if get_worker_info() is not None:
            return 1
        return self.options.threads or _cores()

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="accel-cpu")
            return self._pool

    def _forget_threads(self) -> None:
        """A forked child has none of its parent's threads."""
        self._pool = None
        self._lock = threading.Lock()

    def _image(self, wanted: Decode, of: int, target: npt.NDArray[Any], planar: bool) -> None:
        """Decode one source and write all images made from it into ``target``."""
        pixels = decode.read(wanted, of, self.options, self.options.decode)
        for position, stages, table in wanted.items:
            image = pixels
            for stage in stages[:-1]:
                height, width = stage.output_size
                between = np.empty((height, width, wanted.channels), np.uint8)
                _emit(image, stage, _levels(wanted.channels), between, planar=False)
                image = between
            _emit(image, stages[-1], _bits(table), target[position], planar=planar)


def _cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _emit(pixels: Pixels, stage: Stage, table: npt.NDArray[Any], out: npt.NDArray[Any], *, planar: bool) -> None:
    from . import kernels

    fills = np.array(stage.fills, np.uint8).reshape(-1, pixels.shape[2])
    rows, columns = stage.rows, stage.columns
    if rows.view.table is not None or columns.view.table is not None:
        pixels = _viewed(pixels, stage, fills)
        rows, columns = _whole(rows), _whole(columns)
    kernels.emit(pixels, _axis(rows), _axis(columns), stage.resample, fills, table, out, planar)


def _viewed(pixels: Pixels, stage: Stage, fills: Pixels) -> Pixels:
    """The stage's view as an image of its own: taps may lie in padding there."""
    from . import kernels

    rows, columns = _within(stage.rows.view.array(), pixels.shape[0]), stage.columns.view.array()
    columns = _within(columns, pixels.shape[1])
    view = np.empty((len(rows), len(columns), pixels.shape[2]), np.uint8)
    kernels.gather(pixels, rows, columns, fills, view)
    return view


def _within(positions: npt.NDArray[np.int32], length: int) -> npt.NDArray[np.int32]:
    """Positions outside what was decoded are never looked at; point them somewhere that exists."""
    return np.minimum(positions, length - 1)


def _whole(axis: Axis) -> Axis:
    return axis._replace(view=axis.view.identity(axis.view.length))


def _axis(axis: Axis) -> Any:
    from . import kernels

    view = axis.view
    return kernels.Axis(view.start, view.step, view.length, axis.size, axis.window.array())


def _bits(table: torch.Tensor) -> npt.NDArray[Any]:
    torch_type, numpy_type = _BITS[table.dtype.itemsize]
    return table.view(torch_type).numpy().view(numpy_type)


def _levels(channels: int) -> Pixels:
    return np.tile(np.arange(256, dtype=np.uint8), (channels, 1))
