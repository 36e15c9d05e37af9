"""Pillow's resampling filters: which input positions an output position is made of.

Source: Pillow, src/libImaging/Resample.c (precompute_coeffs). The fixed-point weights themselves are made by
the backends, next to the kernels that use them.
"""

from __future__ import annotations

from PIL.Image import Resampling

SUPPORT: dict[int, float] = {
    Resampling.LANCZOS: 3.0,
    Resampling.BILINEAR: 1.0,
    Resampling.BICUBIC: 2.0,
    Resampling.BOX: 0.5,
    Resampling.HAMMING: 1.0,
}
"""The filters that interpolate, by Pillow's code, with their support in input positions at scale 1."""


def taps(resample: int, size_in: int, size_out: int, first: int, last: int) -> tuple[int, int]:
    """The half-open range of input positions that outputs ``first .. last - 1`` are made of.

    The same float64 arithmetic as Pillow's, so that the range is neither too small nor too large.
    """
    scale = size_in / size_out
    support = SUPPORT[resample] * max(scale, 1.0)
    low = int((first + 0.5) * scale - support + 0.5)
    high = int((last - 0.5) * scale + support + 0.5)
    return max(low, 0), min(high, size_in)
