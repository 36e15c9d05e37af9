"""Methods of Pillow's images as steps: each function returns the steps for a call; (): a copy; None: Pillow runs it.

Pillow also raises errors. Source of the resizing methods: PIL/Image.py and src/_imaging.c (_resize, _reduce), where a
box is four float32 numbers.
"""

from __future__ import annotations

import math
import operator
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from PIL import Image, ImageFilter

from accel.ops.resample import SUPPORT
from accel.planning import lut as tables
from accel.recipes.recipe import Step
from accel.system.private_names import private

private("PIL.Image", "Image._get_safe_box")

_NEAREST, _BILINEAR, _BICUBIC = Image.Resampling.NEAREST, Image.Resampling.BILINEAR, Image.Resampling.BICUBIC
_LARGEST = 1 << 15

Steps = tuple[Step, ...]

_TRANSPOSITIONS: dict[int, Steps] = {
    Image.Transpose.FLIP_LEFT_RIGHT: (("hflip", ()),),
    Image.Transpose.FLIP_TOP_BOTTOM: (("vflip", ()),),
    Image.Transpose.ROTATE_180: (("hflip", ()), ("vflip", ())),
    Image.Transpose.TRANSPOSE: (("transpose", ()),),
    Image.Transpose.ROTATE_90: (("transpose", ()), ("vflip", ())),
    Image.Transpose.ROTATE_270: (("transpose", ()), ("hflip", ())),
    Image.Transpose.TRANSVERSE: (("transpose", ()), ("hflip", ()), ("vflip", ())),
}


def transpose(image: Image.Image, method: Any) -> Steps | None:
    return _TRANSPOSITIONS.get(method)


def point(image: Image.Image, lut: Any, mode: str | None = None) -> Steps | None:
    if mode is not None or isinstance(lut, Image.ImagePointHandler):
        return None
    channels = len(image.getbands())
    made = tables.all_levels(channels).point(lut)
    levels = np.asarray(made).reshape(256, channels).T.tobytes() if made.mode == image.mode else None
    return None if levels is None else (("point", (levels,)),)


def filter(image: Image.Image, filter: Any) -> Steps | None:
    if filter is ImageFilter.GaussianBlur:
        filter = ImageFilter.GaussianBlur()
    name = _BLURS.get(type(filter))
    if name is None or isinstance(filter.radius, np.generic):  # some versions of Pillow refuse NumPy's numbers
        return None
    radii = filter.radius if isinstance(filter.radius, (list, tuple)) else (filter.radius,) * 2
    if len(radii) != 2 or not all(isinstance(radius, (int, float)) and abs(radius) < _LARGEST for radius in radii):
        return None
    return None if name == "box_blur" and min(radii) < 0 else ((name, tuple(map(float, radii))),)


_BLURS: dict[type, str] = {ImageFilter.BoxBlur: "box_blur", ImageFilter.GaussianBlur: "pillow_gaussian_blur"}


@lru_cache(maxsize=64)
def pixel(mode: str, colour: Any) -> tuple[Any, ...]:
    """A colour's values, one per channel."""
    found = Image.new(mode, (1, 1), colour).getpixel((0, 0))
    return found if isinstance(found, tuple) else (found,)


def transform(
    image: Image.Image, size: Any, method: Any, data: Any = None, resample: int = 0, fill: int = 1, fillcolor: Any = 0
) -> Steps | None:
    """The steps of ``Image.transform``.

    Raises:
        ValueError: a coefficient is NaN or infinite, so that no pixel has a place.
    """
    if method == Image.Transform.EXTENT:
        return _extent(image, size, data, resample, fillcolor)
    count = {Image.Transform.AFFINE: 6, Image.Transform.PERSPECTIVE: 8}.get(method)
    if count is None or resample not in (_NEAREST, _BILINEAR, _BICUBIC) or data is None or len(data) < count:
        return None
    try:
        width, height = map(operator.index, size)
        numbers = tuple(float(value) for value in data[:count])
        colour = pixel(image.mode, 0 if fillcolor is None else fillcolor)
    except (TypeError, ValueError):
        return None
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"transform: the coefficients must be finite, got {numbers}")
    if width < 1 or height < 1 or max(width, height, *image.size) >= _LARGEST:
        return None
    if count == 8 and not _has_places(numbers, width, height):
        return None
    if count == 6 and resample == _NEAREST:
        if numbers[1] == numbers[3] == 0:
            scale = numbers[0], numbers[2], numbers[4], numbers[5]
            return (("scale_nearest", (height, width, scale, colour)),)
        if not _fits_fixed_point(numbers, width, height):
            return None
    return (("affine" if count == 6 else "perspective", (height, width, numbers, int(resample), colour)),)


def _has_places(a: tuple[float, ...], width: int, height: int) -> bool:
    """Whether no pixel's place in a perspective transform is 0 / 0, for which Pillow's result is undefined in C."""
    corners = [a[6] * x + a[7] * y + 1 for x in (0, width) for y in (0, height)]
    if min(corners) > 0 or max(corners) < 0:
        return True
    return not any(_meet((a[6], a[7]), (a[n], a[n + 1], a[n + 2]), width, height) for n in (0, 3))


def _meet(horizon: tuple[float, float], line: tuple[float, float, float], width: int, height: int) -> bool:
    """Whether the middle of a pixel may be on both the horizon, p * x + q * y + 1 = 0, and another line, in float64.

    Only the pixels around the point where they meet are tried; lines that are too close for that, may.
    """
    (p, q), (r, s, t) = horizon, line
    if abs(p) * width > abs(q) * height:
        return _meet((q, p), (s, r, t), height, width)
    slope, start = r - s * p / q, t - s / q  # of the line's values along the horizon, by x
    error = 1e-300 + 1e-14 * (abs(r) * width + abs(s) * height + abs(t) + abs(s / q) * (1 + abs(p) * width))
    if slope == 0:
        return not abs(start) > error
    x, reach = -start / slope, error / abs(slope)
    if not reach < 2 or not math.isfinite(x):
        return not (x < -reach or x > width + reach)
    for column in [math.floor(x) + step + 0.5 for step in range(-4, 5)]:
        for row in [math.floor(-(1 + p * column) / q) + step + 0.5 for step in (-1, 0, 1)]:
            inside = 0 < column < width and 0 < row < height
            if inside and p * column + q * row + 1 == 0 == r * column + s * row + t:
                return True
    return False


def _extent(image: Image.Image, size: Any, data: Any, resample: Any, fillcolor: Any) -> Steps | None:
    """The steps of a rectangle shown at a size: Pillow's affine transform for it (Image.py, __transformer)."""
    try:
        (width, height), (left, top, right, bottom) = size, data
        matrix = (right - left) / width, 0, left, 0, (bottom - top) / height, top
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    if not isinstance(size, (list, tuple)) or not all(map(math.isfinite, matrix)):
        return None
    return transform(image, size, Image.Transform.AFFINE, matrix, resample, fillcolor=fillcolor)


def _fits_fixed_point(a: tuple[float, ...], width: int, height: int) -> bool:
    """Whether Pillow computes a nearest affine transform in 16.16 fixed point (Geometry.c, check_fixed)."""
    return all(
        abs(x * a[0] + y * a[1] + a[2]) < 32768 and abs(x * a[3] + y * a[4] + a[5]) < 32768
        for x in (0, width)
        for y in (0, height)
    )


def resize(
    image: Image.Image, size: Any, resample: Any = None, box: Any = None, reducing_gap: Any = None
) -> Steps | None:
    try:
        width, height = map(operator.index, size)
    except (TypeError, ValueError):
        width = height = 0
    if width < 1 or height < 1:
        Image.new(image.mode, (2, 2)).resize(size, resample, None, reducing_gap)  # raises without decoding anything
        return None
    code = Image.Resampling.BICUBIC if resample is None else resample
    if code and code not in SUPPORT:
        return None
    if box is None and reducing_gap is None:
        return _whole(image.size, width, height, code)
    edges = (0, 0, *image.size) if box is None else tuple(box)
    if not _is_box(edges, image.size):
        return None
    reduced: Steps = ()
    input_size = image.size
    if reducing_gap is not None:
        if not isinstance(reducing_gap, (int, float)) or not reducing_gap >= 1:
            return None
        reduced, edges, input_size = _reduced_first(image, (width, height), code, edges, reducing_gap)
        if not _is_box(edges, input_size):
            return None
    resized = _resized(input_size, len(image.getbands()), width, height, code, edges)
    return None if resized is None else reduced + resized


def _reduced_first(
    image: Image.Image, size: tuple[int, int], code: Any, edges: tuple[Any, ...], gap: float
) -> tuple[Steps, tuple[Any, ...], tuple[int, int]]:
    """The reduction before a resize of a box, the box in its result, and the result's size."""
    factors = [int((edges[2 + axis] - edges[axis]) / length / gap) or 1 for axis, length in enumerate(size)]
    if code == Image.Resampling.NEAREST or max(factors) <= 1:
        return (), edges, image.size
    safe = image._get_safe_box(size, code, edges)
    new = (-((safe[0] - safe[2]) // factors[0]), -((safe[1] - safe[3]) // factors[1]))
    inside = tuple((edges[n] - safe[n % 2]) / factors[n % 2] for n in range(4))
    return _reduced(image.size, factors[0], factors[1], safe), inside, new


def _is_box(edges: tuple[Any, ...], size: tuple[int, int]) -> bool:
    if len(edges) != 4 or not all(isinstance(edge, (int, float)) and math.isfinite(edge) for edge in edges):
        return False
    left, top, right, bottom = edges
    return bool(0 <= left < right <= size[0] and 0 <= top < bottom <= size[1])


def _whole(size: tuple[int, int], width: int, height: int, code: int) -> Steps:
    if (width, height) == size:
        return ()
    if code == 0:  # Image.Resampling.NEAREST
        return (("resize_nearest", (height, width)),)
    return (("resize", (height, width, int(code))),)


def _resized(
    size: tuple[int, int], channels: int, width: int, height: int, code: int, edges: tuple[Any, ...]
) -> Steps | None:
    if edges == (0, 0, *size):
        return _whole(size, width, height, code)
    left, top, right, bottom = box = tuple(float(np.float32(edge)) for edge in edges)
    across, down = float(np.float32(right - left)), float(np.float32(bottom - top))
    if (across, down) == (width, height) and left.is_integer() and top.is_integer():
        return (("crop", (int(top), int(left), height, width)),)
    if max(width, height, *size) >= _LARGEST or min(across, down) <= 0:
        return None
    if code == Image.Resampling.NEAREST:
        return (("scale_nearest", (height, width, (across / width, left, down / height, top), (0,) * channels)),)
    return (("resize_box", (height, width, int(code), box)),)


def reduce(image: Image.Image, factor: Any, box: Any = None) -> Steps | None:
    factors = factor if isinstance(factor, (list, tuple)) else (factor, factor)
    if factors == (1, 1):
        return None  # Pillow calls crop() or copy()
    try:
        across, down = map(operator.index, factors)
        edges = (0, 0, *image.size) if box is None else tuple(map(operator.index, box))
    except (TypeError, ValueError):
        return None
    if min(across, down) < 1 or not _is_box(edges, image.size):
        return None
    return _reduced(image.size, across, down, edges)


def _reduced(size: tuple[int, int], across: int, down: int, edges: tuple[Any, ...]) -> Steps:
    left, top, right, bottom = edges
    cropped: Steps = () if edges == (0, 0, *size) else (("crop", (top, left, bottom - top, right - left)),)
    return (*cropped, ("reduce", (across, down)))


class Thumbnail:
    """A stand-in for an image, on which Pillow's ``thumbnail`` finds the arguments of ``resize`` (None: no resize)."""

    def __init__(self, size: tuple[int, int], *arguments: Any) -> None:
        self.size = size
        self.width, self.height = size
        self.im = SimpleNamespace(mode="")
        self.resized: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        Image.Image.thumbnail(self, *arguments)  # type: ignore[arg-type]

    def draft(self, *_: object) -> None:
        """Do nothing: only files have drafts."""

    load = draft

    def resize(self, *args: Any, **kwargs: Any) -> Thumbnail:
        self.resized = args, kwargs
        return self
