"""Two dialects of resampling, Pillow's and torch's: the input positions that an output position depends on.

Sources: Pillow, src/libImaging/Resample.c (precompute_coeffs); PyTorch, aten/src/ATen/native/cpu/UpSampleKernel.cpp
(HelperInterpBase) and aten/src/ATen/native/UpSample.h. The backends compute the fixed-point weights themselves, next to
the kernels that use them.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
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


class Aten(IntEnum):
    """Codes beside Pillow's for ``torch.nn.functional.interpolate`` of uint8 to a size, ``align_corners=False``.

    The low three bits are Pillow's code of the filter. The first three antialias, the POINT ones do not. The memory
    layout of the image makes no difference.

    This is what torchvision's v2 ``resize`` does with uint8 on the CPU: always for bicubic and Lanczos; for bilinear if
    ``torch.backends.cpu.get_cpu_capability()`` is AVX2 or AVX512, or the machine is ARM; otherwise, and in v1 always,
    it interpolates in float32 and rounds, an arithmetic that is not among these. torch itself fails if the result is a
    single pixel (2.15: it raises) or, without AVX2, a single column (it repeats the first row).
    """

    LANCZOS = 8 + Resampling.LANCZOS
    BILINEAR = 8 + Resampling.BILINEAR
    BICUBIC = 8 + Resampling.BICUBIC
    BILINEAR_POINT = 16 + Resampling.BILINEAR
    BICUBIC_POINT = 16 + Resampling.BICUBIC


class Extent(NamedTuple):
    """The part of an axis that is resampled, by its edges, which are float32 numbers."""

    begin: float
    end: float

    @property
    def span(self) -> float:
        """Its length, computed in float32."""
        return float(np.float32(self.end) - np.float32(self.begin))


def box_of(rows: Extent | None, columns: Extent | None, size: tuple[int, int]) -> tuple[float, float, float, float]:
    """Pillow's box (left, top, right, bottom) for two extents (None: the whole axis) of an image (height, width)."""
    (top, bottom), (left, right) = rows or (0, size[0]), columns or (0, size[1])
    return left, top, right, bottom


def part(extent: Extent | None, length: int) -> tuple[float, float]:
    """The beginning and the length of the resampled part of an axis of this length."""
    return (0.0, float(length)) if extent is None else (extent.begin, extent.span)


def extents(box: tuple[float, ...] | None, size: tuple[int, int]) -> tuple[Extent | None, Extent | None]:
    """The extents along rows and columns of Pillow's box (left, top, right, bottom) in an image (height, width).

    None: the whole axis.
    """
    if box is None:
        return None, None
    left, top, right, bottom = box
    rows, columns = Extent(top, bottom), Extent(left, right)
    return None if rows == (0, size[0]) else rows, None if columns == (0, size[1]) else columns


def taps(
    resample: int, size_in: int, size_out: int, first: int, last: int, extent: Extent | None = None
) -> tuple[int, int]:
    """The half-open range of input positions that outputs ``first .. last - 1`` depend on.

    Computed by the same float64 arithmetic as Pillow's and torch's, so that the range is exact.
    """
    begin, span = part(extent, size_in)
    scale = span / size_out
    if resample >= Aten.BILINEAR_POINT:
        reach = int(SUPPORT[resample & 7])
        low, high = (_point(p, scale, size_in, cubic=reach > 1) for p in (first, last - 1))
        return max(low - reach + 1, 0), min(high + reach + 1, size_in)
    support = SUPPORT[resample & 7] * max(scale, 1.0)
    low = int(begin + (first + 0.5) * scale - support + 0.5)
    high = int(begin + (last - 0.5) * scale + support + 0.5)
    return max(low, 0), min(high, size_in)


def _point(position: int, scale: float, size_in: int, *, cubic: bool) -> int:
    """The input position at or before the point that an output position samples.

    Sources: UpSample.h, area_pixel_compute_source_index and guard_index_and_lambda, which takes ``floorf`` of a double.
    """
    point = scale * (position + 0.5) - 0.5
    if not cubic:
        point = max(point, 0.0)
    return min(math.floor(np.float32(point)), size_in - 1)


PILLOW = tuple(int(part) for part in _installed.split(".")[:2])


def rows_first(
    resample: int, height: Any, width: Any, new_height: Any, new_width: Any, pillow: tuple[int, ...] = PILLOW
) -> Any:
    """Whether the rows of an image are resampled before its columns, by this version of Pillow (major, minor).

    The sizes are integers, or arrays of them; so is the result.

    The pixels in between are rounded to uint8, so the order shows in the result. Sources: Pillow 12.2 PIL/Image.py
    (Image.resize) and Pillow 13.0 src/libImaging/Resample.c (ImagingResampleInner). Up to 12.1, and in torch, the
    columns always come first.
    """
    if resample not in SUPPORT:
        return False
    if pillow >= (13, 0):
        return (height > new_height) & (height - new_height > 2 * (width - new_width))
    return pillow >= (12, 2) and (height > 100 * width) & (height > new_height)


def nearest(size_in: int, size_out: int) -> npt.NDArray[np.int32]:
    """The input positions that ``interpolate(mode="nearest")`` picks, int32[size_out].

    Source: UpSample.h, nearest_neighbor_compute_source_index: ``floorf(position * scale)`` in float32.
    """
    scale = np.float32(size_in) / np.float32(size_out)
    return _below(np.arange(size_out, dtype=np.float32) * scale, size_in)


def nearest_exact(size_in: int, size_out: int, other_out: int) -> npt.NDArray[np.int32]:
    """The input positions that ``interpolate(mode="nearest-exact")`` picks, int32[size_out].

    torch has two kernels for this, which round differently, and uses the first one if the sum of the result's two sides
    is at most 128; ``other_out``: the size of the other axis. Sources: UpSample.h,
    nearest_neighbor_exact_compute_source_index; UpSampleKernel.cpp, HelperInterpNearestExact and
    _use_vectorized_kernel_cond_2d (for up to three channels).
    """
    points = (np.arange(size_out) + 0.5) * np.float64(np.float32(size_in) / np.float32(size_out))
    if size_out + other_out > 128:
        points = np.maximum((points - 0.5).astype(np.float32), np.float32(0)).astype(np.float64) + 0.5
    return _below(points.astype(np.float32), size_in)


def _below(points: npt.NDArray[np.float32], size_in: int) -> npt.NDArray[np.int32]:
    return np.minimum(np.floor(points).astype(np.int32), np.int32(size_in - 1))
