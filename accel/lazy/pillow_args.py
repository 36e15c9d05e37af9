"""Arguments of Pillow's ``transform``, ``transpose`` and ``point`` as ops and their parameters."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
from PIL import Image, ImageFilter

from accel.planning import lut
from accel.recipe import Step

_NEAREST, _BILINEAR, _BICUBIC = Image.Resampling.NEAREST, Image.Resampling.BILINEAR, Image.Resampling.BICUBIC

TRANSPOSITIONS: dict[int, tuple[Step, ...]] = {
    Image.Transpose.FLIP_LEFT_RIGHT: (("hflip", ()),),
    Image.Transpose.FLIP_TOP_BOTTOM: (("vflip", ()),),
    Image.Transpose.ROTATE_180: (("hflip", ()), ("vflip", ())),
    Image.Transpose.TRANSPOSE: (("transpose", ()),),
    Image.Transpose.ROTATE_90: (("transpose", ()), ("vflip", ())),
    Image.Transpose.ROTATE_270: (("transpose", ()), ("hflip", ())),
    Image.Transpose.TRANSVERSE: (("transpose", ()), ("hflip", ()), ("vflip", ())),
}
"""Each of Pillow's transpositions as steps."""


def step(image: Image.Image, size: Any, method: Any, data: Any, resample: Any, fillcolor: Any) -> Step | None:
    """``image.transform(...)`` as a step; None for what is left to Pillow.

    Raises:
        ValueError: a coefficient is NaN or infinite, so that no pixel has a place.
    """
    if method == Image.Transform.EXTENT:
        return _extent(image, size, data, resample, fillcolor)
    count = {Image.Transform.AFFINE: 6, Image.Transform.PERSPECTIVE: 8}.get(method)
    if count is None or resample not in (_NEAREST, _BILINEAR, _BICUBIC) or len(data) < count:
        return None
    try:
        width, height = map(operator.index, size)
        numbers = tuple(float(value) for value in data[:count])
    except (TypeError, ValueError):
        return None
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"transform: the coefficients must be finite, got {numbers}")
    if width < 1 or height < 1 or max(width, height, *image.size) >= 1 << 15:
        return None
    pixel = Image.new(image.mode, (1, 1), 0 if fillcolor is None else fillcolor).getpixel((0, 0))
    fill = pixel if isinstance(pixel, tuple) else (pixel,)
    if count == 8:
        return "perspective", (height, width, numbers, int(resample), fill)
    if resample != _NEAREST:
        return "affine", (height, width, numbers, int(resample), fill)
    if numbers[1] == numbers[3] == 0:
        return "scale_nearest", (height, width, (numbers[0], numbers[2], numbers[4], numbers[5]), fill)
    if _fits_fixed_point(numbers, width, height):
        return "affine", (height, width, numbers, int(resample), fill)
    return None


def blur_step(filter: Any) -> Step | None:
    """``image.filter(...)`` as a step, of one of Pillow's own blurs; None for what is left to Pillow."""
    if filter is ImageFilter.GaussianBlur:
        filter = ImageFilter.GaussianBlur()
    name = _BLURS.get(type(filter))
    if name is None or isinstance(filter.radius, np.generic):  # which some versions of Pillow refuse
        return None
    radii = filter.radius if isinstance(filter.radius, (list, tuple)) else (filter.radius,) * 2
    if len(radii) != 2 or not all(isinstance(radius, (int, float)) and abs(radius) < _WIDEST for radius in radii):
        return None
    return None if name == "box_blur" and min(radii) < 0 else (name, tuple(map(float, radii)))


_WIDEST = 1 << 15
_BLURS: dict[type, str] = {ImageFilter.BoxBlur: "box_blur", ImageFilter.GaussianBlur: "pillow_gaussian_blur"}


def point_table(table: Any, mode: str) -> bytes | None:
    """The levels [channels, 256] of Pillow's ``image.point(table)``; None where that gives an image of another mode."""
    channels = 1 if mode == "L" else 3
    made = lut.all_levels(channels).point(table)
    return np.asarray(made).reshape(256, channels).T.tobytes() if made.mode == mode else None


def _extent(image: Image.Image, size: Any, data: Any, resample: Any, fillcolor: Any) -> Step | None:
    """A rectangle shown at a size: the affine transform that Pillow makes of it (Image.py, __transformer)."""
    try:
        (width, height), (left, top, right, bottom) = size, data
        matrix = (right - left) / width, 0, left, 0, (bottom - top) / height, top
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    if not isinstance(size, (list, tuple)) or not all(map(math.isfinite, matrix)):
        return None
    return step(image, size, Image.Transform.AFFINE, matrix, resample, fillcolor)


def _fits_fixed_point(a: tuple[float, ...], width: int, height: int) -> bool:
    """Whether Pillow computes a nearest affine transform in 16.16 fixed point (Geometry.c, check_fixed)."""
    return all(
        abs(x * a[0] + y * a[1] + a[2]) < 32768 and abs(x * a[3] + y * a[4] + a[5]) < 32768
        for x in (0, width)
        for y in (0, height)
    )
