"""Schedules of kernel launches, and executing them on a device. Nothing here waits for the device.

A schedule is pure data, made without pixels or a device. Its addresses are places (``descriptors``) until memory is
allocated. Launches are on levels; those of one level may run in any order, once the levels below are done.

Resampling coefficients of bilinear, bicubic and box are computed on the device, from the boxes alone: by sums, products
and quotients of float64, which round alike everywhere. Those of Lanczos and Hamming need sines, whose last bit differs
between libraries; they are computed on the host by compiled code, which calls the same libm as Pillow, and are sent
along.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL.Image import Resampling

from accel.backends.cuda.descriptors import COEFFICIENT_JOB, offset_of, packer, place
from accel.backends.cuda.regions import ALIGNED, Region
from accel.ops.resample import SUPPORT, Aten
from accel.planning.stages import Levels
from accel.system.native import units

_UNIT = units.Unit(
    "coefficients", "backends/shared/coefficient_kernels.py", "backends/shared/numba_memory.py", seconds=1
)
_compute = _UNIT.function("backends.shared.coefficient_kernels", "computed_bits", "int int f8 f8 int int int u1[1]w")

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int32]


class CoefficientJob(NamedTuple):
    """The coefficients of ``shown`` resampled positions from ``first`` on.

    ``span`` of the ``length`` positions of the axis, from ``begin`` on, are resampled to ``size``.
    """

    begin: float
    span: float
    resample: int
    length: int
    size: int
    first: int
    shown: int

    @property
    def on_host(self) -> bool:
        return self.is_resampled and self.resample & 7 in (Resampling.LANCZOS, Resampling.HAMMING)

    @property
    def is_resampled(self) -> bool:
        return self.begin != 0 or self.span != self.size

    @property
    def most_taps(self) -> int:
        """The most taps of any position."""
        if not self.is_resampled:
            return 1
        scale = 1.0 if self.resample >= Aten.BILINEAR_POINT else max(self.span / self.size, 1.0)
        return math.ceil(SUPPORT[self.resample & 7] * scale) * 2 + 1


@lru_cache(maxsize=4096)
def sizes_of(begin: float, span: float, resample: int, size: int, shown: int) -> tuple[int, int]:
    """The padded bytes of a job's bounds, and the bytes of bounds and coefficients together."""
    length = 2 * shown + 1  # first taps, numbers of taps, and the bits after the binary point
    bounds = -(-4 * length // ALIGNED) * ALIGNED
    return bounds, bounds + 4 * CoefficientJob(begin, span, resample, 0, size, 0, shown).most_taps * shown


@lru_cache(maxsize=256)
def computed_on_host(job: CoefficientJob, bounds_size: int) -> tuple[Integers, Integers]:
    """Compute the bounds, in ``bounds_size`` bytes, and the coefficients for the kernels."""
    begin, span, resample, length, size, first, shown = job
    memory = np.zeros(job.most_taps * (shown + 2) + 2 * shown, np.int32)  # coefficient_kernels.memory_size
    bounds = np.zeros(bounds_size // 4, np.int32)
    bounds[2 * shown] = _compute(resample, length, begin, span, size, first, shown, memory.view(np.uint8))
    bounds[: 2 * shown] = memory[-2 * shown :].reshape(shown, 2).T.reshape(-1)
    return bounds, np.ascontiguousarray(memory[2 * job.most_taps : -2 * shown].reshape(shown, -1).T)


_packed_job = packer(COEFFICIENT_JOB)


class Arena:
    """Offsets in a region of memory, handed out one after another."""

    def __init__(self, region: Region) -> None:
        self._start = place(region, 0)
        self.size = 0

    def take(self, size: int) -> int:
        """The place of ``size`` bytes."""
        where = self._start + self.size
        self.size += (size + ALIGNED - 1) & -ALIGNED
        return where


class Launch:
    """One kernel over a list of items, each of one or more blocks."""

    def __init__(self, kernel: str, dtype: np.dtype[Any]) -> None:
        self.kernel = kernel
        self.dtype = dtype
        self.rows: list[bytes | memoryview] = []
        self.blocks: list[int] = []
        self.total = 0

    def add(self, row: bytes, blocks: int = 1) -> None:
        """Add an item. ``row``: a structure of the dtype, with places as addresses."""
        self.rows.append(row)
        self.blocks.append(blocks)
        self.total += blocks

    def add_all(self, items: npt.NDArray[Any], blocks: int = 1) -> None:
        """Add items [n], contiguous, of the dtype's size, with the number of blocks of each."""
        self.rows.append(items.data)
        self.blocks += [blocks] * len(items)
        self.total += blocks * len(items)

    @property
    def count(self) -> int:
        """The number of items."""
        return len(self.blocks)

    def items(self) -> Bytes:
        return np.frombuffer(b"".join(self.rows), np.uint8)


class Sent(NamedTuple):
    """Data that the host sends: its place, and a function that makes it when needed (it may take time)."""

    place: int
    content: Callable[[], Sequence[npt.NDArray[Any]]]


class Pixels(NamedTuple):
    """Pixels on the device, uint8 [height, width, channels], interleaved and dense.

    ``lut``: the place of a table, uint8 [channels, 256], in which they are still to be looked up; 0 for none.
    """

    place: int
    height: int
    width: int
    channels: int
    lut: int = 0


class Schedule:
    """The work that runs a plan: the memory it takes, the data that is sent, and the launches in order.

    Attributes:
        pixels: the places of the pixels of the plan's decodes, in order.
        upload, scratch: the allocations in these regions.
    """

    def __init__(self) -> None:
        self.upload, self.scratch = Arena(Region.UPLOAD), Arena(Region.SCRATCH)
        self.pixels: list[int] = []
        self.sent: list[Sent] = []
        self.levels: list[dict[str, Launch]] = []
        self._known: dict[Any, int] = {}

    def launch(self, level: int, kernel: str, dtype: np.dtype[Any]) -> Launch:
        """The launch of a kernel at a level, which runs when the levels below are done."""
        while len(self.levels) <= level:
            self.levels.append({})
        found = self.levels[level].get(kernel)
        if found is None:
            found = self.levels[level][kernel] = Launch(kernel, dtype)
        return found

    def send(self, key: Any, size: int, content: Callable[[], Sequence[npt.NDArray[Any]]]) -> int:
        """The place of ``size`` bytes that the host makes and sends, only once for every ``key``."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self.upload.take(size)
            self.sent.append(Sent(found, content))
        return found

    def send_lut(self, lut: Levels | None) -> int:
        """The place of a lookup table of bytes; 0 for None."""
        return 0 if lut is None else self.send((id(lut), "lut"), lut.nbytes, lambda: [lut])

    def coefficients(self, job: CoefficientJob) -> tuple[int, int]:
        """The places of an axis' bounds and coefficients, which are computed or sent once for every job."""
        bounds_size, size = sizes_of(*job[:3], job.size, job.shown)
        found = self._known.get(job)
        if found is not None:
            return found, found + bounds_size
        if job.on_host:
            found = self.send(job, size, lambda: computed_on_host(job, bounds_size))
        else:
            found = self._known[job] = self.scratch.take(size)
            row = _packed_job(found, found + bounds_size, *job, 0)
            self.launch(0, "coefficients", COEFFICIENT_JOB).add(row)
        return found, found + bounds_size


# -- what a schedule becomes -------------------------------------------------------------------------------


def placed(schedule: Schedule) -> list[tuple[Launch, int, int]]:
    """The launches of a schedule in order, each with the offsets of its descriptors and their owners in the upload,
    where they are given room at the end. Call it only once."""
    upload, found = schedule.upload, []
    for launch in (launch for level in schedule.levels for launch in level.values()):
        items = offset_of(upload.take(launch.count * launch.dtype.itemsize))
        found.append((launch, items, offset_of(upload.take(launch.total * 4))))
    return found


def filled(upload: Bytes, each: Sent) -> None:
    """Copy the content of something that is sent into the upload."""
    offset = offset_of(each.place)
    for array in each.content():
        flat = array.reshape(-1).view(np.uint8)
        upload[offset : offset + len(flat)] = flat
        offset += len(flat)
