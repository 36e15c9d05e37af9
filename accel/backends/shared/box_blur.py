"""Radii and weights of Pillow's extended box blur, in the arithmetic of src/libImaging/BoxBlur.c (float32)."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

PASSES = 3
"""The number of box blurs that make a Gaussian one."""


@lru_cache(maxsize=256)
def weights(radius: float) -> tuple[int, int, int]:
    """The radius in whole pixels, their weight, and that of the two pixels beyond: uint32 with 24 fractional bits."""
    exact, whole = np.float32(radius), int(radius)
    inner = int(np.float32(1 << 24) / (exact * np.float32(2) + np.float32(1)))
    return whole, inner, ((1 << 24) - (2 * whole + 1) * inner) % (1 << 32) // 2


@lru_cache(maxsize=256)
def radius_of(sigma: float) -> float:
    """The radius of the box blurs that make a Gaussian one of this standard deviation."""
    exact, one, six = np.float32(sigma), np.float32(1), np.float32(6)
    variance = exact * exact / np.float32(PASSES)
    length = float(np.float32(math.sqrt(12.0 * float(variance) + 1.0)))
    whole = np.float32(math.floor((length - 1.0) / 2.0))
    part = (np.float32(2) * whole + one) * (whole * (whole + one) - np.float32(3) * variance)
    return float(whole + part / (six * (variance - (whole + one) * (whole + one))))
