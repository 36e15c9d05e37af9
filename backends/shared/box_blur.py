"""Pillow's extended box blur: its weights, in the arithmetic of src/libImaging/BoxBlur.c (float32)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np


@lru_cache(maxsize=256)
def weights(radius: float) -> tuple[int, int, int]:
    """The radius in whole pixels, the weight of these, and that of the two beyond: uint32, 24 bits after the point."""
    exact, whole = np.float32(radius), int(radius)
    inner = int(np.float32(1 << 24) / (exact * np.float32(2) + np.float32(1)))
    return whole, inner, ((1 << 24) - (2 * whole + 1) * inner) % (1 << 32) // 2
