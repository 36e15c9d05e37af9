"""Resampling coefficients of an axis: where they are computed, and how much memory they take.

Those of bilinear, bicubic and box are computed on the device, from the boxes alone: sums, products and quotients of
float64, which round alike everywhere. Those of Lanczos and Hamming need sines, whose last bit differs from one
library to the next; they are computed on the host by compiled code, which calls the libm that Pillow calls, and
are sent along.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL.Image import Resampling

from accel.backends.shared.coefficients import axis_coefficients
from accel.ops.resample import SUPPORT, Aten

Integers = npt.NDArray[np.int32]


class CoefficientJob(NamedTuple):
    """The coefficients of ``shown`` resampled positions from ``first`` on, of ``length`` resampled to ``size``."""

    resample: int
    length: int
    size: int
    first: int
    shown: int

    @property
    def on_host(self) -> bool:
        return self.length != self.size and self.resample & 7 in (Resampling.LANCZOS, Resampling.HAMMING)

    @property
    def most_taps(self) -> int:
        """No position has more."""
        if self.length == self.size:
            return 1
        scale = 1.0 if self.resample >= Aten.BILINEAR_POINT else max(self.length / self.size, 1.0)
        return math.ceil(SUPPORT[self.resample & 7] * scale) * 2 + 1


ALIGNED = 64


@lru_cache(maxsize=4096)
def sizes_of(resample: int, length: int, size: int, shown: int) -> tuple[int, int]:
    """The bytes that the bounds of such a job take, padded, and those that bounds and coefficients take together."""
    bounds = -(-4 * _bounds_length(shown) // ALIGNED) * ALIGNED
    return bounds, bounds + 4 * CoefficientJob(resample, length, size, 0, shown).most_taps * shown


def _bounds_length(shown: int) -> int:
    """First taps, numbers of taps, and the bits after the binary point."""
    return 2 * shown + 1


@lru_cache(maxsize=256)
def computed_on_host(job: CoefficientJob) -> tuple[Integers, Integers]:
    """Bounds and coefficients as the kernels take them."""
    bounds = np.zeros(_bounds_length(job.shown), np.int32)
    coefficients = np.zeros((job.most_taps, job.shown), np.int32)
    bounds[-1] = axis_coefficients(*job[:4], bounds[:-1].reshape(2, job.shown), coefficients)
    return bounds, coefficients
