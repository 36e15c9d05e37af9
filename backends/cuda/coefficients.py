"""Where an axis' resampling weights come from, and how much room they take.

Those of bilinear, bicubic and box are made on the device, from the boxes alone: sums, products and quotients of
float64, which round alike everywhere. Those of Lanczos and Hamming need sines, whose last bit differs from one
library to the next; they are made on the host by the ``cpu`` backend's compiled code, which calls the libm that
Pillow calls, and are sent along.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL.Image import Resampling

from accel.backends.cpu import kernels
from accel.ops.resample import SUPPORT, Aten

Weights = npt.NDArray[np.int32]


class Job(NamedTuple):
    """The weights of ``shown`` resampled positions from ``first`` on, of ``length`` resampled to ``size``."""

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

    @property
    def bounds_length(self) -> int:
        """int32 values: first taps, numbers of taps, and the bits after the binary point."""
        return 2 * self.shown + 1

    @property
    def weights_length(self) -> int:
        """int32 values: [most taps][count]."""
        return self.most_taps * self.shown


ALIGNED = 64


@lru_cache(maxsize=4096)
def room(resample: int, length: int, size: int, shown: int) -> tuple[int, int]:
    """The bytes that the bounds of such a job take, padded, and those that bounds and weights take together."""
    job = Job(resample, length, size, 0, shown)
    bounds = (4 * job.bounds_length + ALIGNED - 1) // ALIGNED * ALIGNED
    return bounds, bounds + 4 * job.weights_length


@lru_cache(maxsize=256)
def made_on_host(job: Job) -> tuple[Weights, Weights]:
    """Bounds and weights as the kernels take them."""
    bounds = np.zeros(job.bounds_length, np.int32)
    weights = np.zeros((job.most_taps, job.shown), np.int32)
    bounds[-1] = kernels.weigh_axis(*job[:4], bounds[:-1].reshape(2, job.shown), weights)
    return bounds, weights
