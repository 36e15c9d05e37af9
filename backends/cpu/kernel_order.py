"""Which axis Pillow resamples first; the pixels in between are rounded, so the order shows in the result.

Sources: Pillow 12.2 PIL/Image.py (Image.resize) and Pillow 13.0 src/libImaging/Resample.c (ImagingResampleInner).
Up to 12.1 the columns always come first.
"""

from __future__ import annotations

from PIL import __version__ as _installed

_PILLOW = tuple(int(part) for part in _installed.split(".")[:2])


def rows_first(height: int, width: int, new_height: int, new_width: int, pillow: tuple[int, ...] = _PILLOW) -> bool:
    """Whether this version of Pillow (major, minor) resamples the rows of such an image before its columns."""
    if pillow >= (13, 0):
        return height - new_height > max(0, 2 * (width - new_width))
    return pillow >= (12, 2) and height > 100 * width and height > new_height
