"""Resampling coefficients of an axis: computing them on the device or the host, and the memory that they take.

Those of bilinear, bicubic and box are computed on the device, from the boxes alone: by sums, products and quotients of
float64, which round alike everywhere. Those of Lanczos and Hamming need sines, whose last bit differs between
libraries; they are computed on the host by compiled code, which calls the same libm as Pillow, and are sent along.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL.Image import Resampling

from accel.ops.resample import SUPPORT, Aten
from accel.system.native import units

_UNIT = units.Unit(
    "coefficients", "backends/shared/coefficient_kernels.py", "backends/shared/numba_memory.py", seconds=1
)
_compute = _UNIT.function("backends.shared.coefficient_kernels", "computed_bits", "int int f8 f8 int int int u1[1]w")

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


ALIGNED = 64


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
