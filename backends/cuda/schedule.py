"""Schedules of kernel launches: pure data, made without pixels or a device.

Addresses are places (``descriptors``) until memory is allocated. Launches are on levels; those of one level may run in
any order, once the levels below are done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.backends.cuda.coefficients import ALIGNED, CoefficientJob, computed_on_host, sizes_of
from accel.backends.cuda.descriptors import COEFFICIENT_JOB, Region, packer, place
from accel.planning.stages import Levels

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
        self.rows: list[bytes] = []
        self.blocks: list[int] = []
        self.total = 0

    def add(self, row: bytes, blocks: int = 1) -> None:
        """Add an item. ``row``: a structure of the dtype, with places as addresses."""
        self.rows.append(row)
        self.blocks.append(blocks)
        self.total += blocks

    def add_all(self, items: npt.NDArray[Any], blocks: npt.NDArray[np.int64]) -> None:
        """Add items [n] of the dtype, with the number of blocks of each."""
        self.rows.append(items.tobytes())
        self.blocks += blocks.tolist()
        self.total += int(blocks.sum())

    @property
    def count(self) -> int:
        """The number of items."""
        return len(self.blocks)

    def items(self) -> npt.NDArray[Any]:
        return np.frombuffer(bytearray().join(self.rows), self.dtype)

    def owners(self) -> npt.NDArray[np.int32]:
        """The number of every block's item."""
        return np.repeat(np.arange(self.count, dtype=np.int32), self.blocks)


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
