"""Pillow's resampling filters: which input positions an output position is made of.

Source: Pillow, src/libImaging/Resample.c (precompute_coeffs). The fixed-point weights themselves are made by
the backends, next to the kernels that use them.
"""

from __future__ import annotations

from PIL import __version__ as _installed
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


_PILLOW = tuple(int(part) for part in _installed.split(".")[:2])


def rows_first(height: int, width: int, new_height: int, new_width: int, pillow: tuple[int, ...] = _PILLOW) -> bool:
    """Whether this version of Pillow (major, minor) resamples the rows of such an image before its columns.

    The pixels in between are rounded to uint8, so the order shows in the result. Sources: Pillow 12.2
    PIL/Image.py (Image.resize) and Pillow 13.0 src/libImaging/Resample.c (ImagingResampleInner); up to 12.1 the
    columns always come first.
    """
    if pillow >= (13, 0):
        return height - new_height > max(0, 2 * (width - new_width))
    return pillow >= (12, 2) and height > 100 * width and height > new_height
