"""Resampling coefficients in fixed point, computed on the host for kernels that run elsewhere."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from accel.native import units

SOURCES = "backends/shared/coefficient_kernels.py", "backends/shared/numba_memory.py"

_UNIT = units.Unit("coefficients", *SOURCES, seconds=1)
_compute = _UNIT.function(
    "backends.shared.coefficient_kernels", "axis_coefficients", "int int f8 f8 int int i4[2]w i4[2]w u1[1]w"
)


def axis_coefficients(
    resample: int,
    length: int,
    begin: float,
    span: float,
    size: int,
    first: int,
    bounds: npt.NDArray[np.int32],
    coefficients: npt.NDArray[np.int32],
) -> int:
    """Compute the coefficients of some resampled positions of an axis, from ``first`` on.

    Args:
        resample, length, size: a filter, and the axis' positions before and after it.
        begin, span: the part of the axis that is resampled.
        first: the first resampled position.
        bounds: int32 [2, count], filled with first taps and numbers of taps.
        coefficients: int32 [most taps, count], filled with fixed-point coefficients up to each number of taps.

    Returns:
        How many bits of a coefficient are after the binary point.
    """
    taps, count = coefficients.shape
    memory = np.empty(4 * (taps * (count + 2) + 2 * count), np.uint8)  # coefficient_kernels.memory_size
    return _compute(resample, length, begin, span, size, first, bounds, coefficients, memory)
