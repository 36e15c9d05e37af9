"""Pillow's ``resize``, ``reduce`` and ``thumbnail`` as steps: which they are, and with which parameters.

Source: Pillow, PIL/Image.py and src/_imaging.c (_resize, _reduce). A box is four float32 numbers there.
"""

from __future__ import annotations

import math
import operator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from accel.ops.resample import SUPPORT
from accel.system.private_names import private

if TYPE_CHECKING:
    from accel.lazy.image import LazyImage

private("PIL.Image", "Image._get_safe_box")

_LARGEST = 1 << 15


def resized(image: LazyImage, size: Any, resample: Any, box: Any, reducing_gap: Any) -> Image.Image | None:
    """``image.resize(...)``, recorded; None for what is left to Pillow, which also says what is wrong."""
    code = Image.Resampling.BICUBIC if resample is None else resample
    if code and code not in SUPPORT:
        return None
    try:
        width, height = map(operator.index, size)
    except (TypeError, ValueError):
        return None
    if width < 1 or height < 1:
        return None
    if box is None and reducing_gap is None:
        return _whole(image, width, height, code)
    edges = (0, 0, *image.size) if box is None else tuple(box)
    if not _is_box(edges, image.size):
        return None
    if reducing_gap is not None:
        if not isinstance(reducing_gap, (int, float)) or not reducing_gap >= 1:
            return None
        factors = [
            int((edges[2 + axis] - edges[axis]) / length / reducing_gap) or 1
            for axis, length in enumerate((width, height))
        ]
        if code != Image.Resampling.NEAREST and max(factors) > 1:
            safe = image._get_safe_box((width, height), code, edges)
            reduced = image.reduce((factors[0], factors[1]), safe)
            edges = tuple((edges[n] - safe[n % 2]) / factors[n % 2] for n in range(4))
            return reduced.resize((width, height), code, edges)
    return _resized(image, width, height, code, edges)


def _is_box(edges: tuple[Any, ...], size: tuple[int, int]) -> bool:
    if len(edges) != 4 or not all(isinstance(edge, (int, float)) and math.isfinite(edge) for edge in edges):
        return False
    left, top, right, bottom = edges
    return bool(0 <= left < right <= size[0] and 0 <= top < bottom <= size[1])


def _whole(image: LazyImage, width: int, height: int, code: int) -> Image.Image:
    if (width, height) == image.size:
        return image.copy()
    if code == 0:  # Image.Resampling.NEAREST
        return image.then("resize_nearest", (height, width))
    return image.then("resize", (height, width, int(code)))


def _resized(image: LazyImage, width: int, height: int, code: int, edges: tuple[Any, ...]) -> Image.Image | None:
    if edges == (0, 0, *image.size):
        return _whole(image, width, height, code)
    left, top, right, bottom = box = tuple(float(np.float32(edge)) for edge in edges)
    across, down = float(np.float32(right - left)), float(np.float32(bottom - top))
    if (across, down) == (width, height) and left.is_integer() and top.is_integer():
        return image.crop((int(left), int(top), int(right), int(bottom)))
    if max(width, height, *image.size) >= _LARGEST or min(across, down) <= 0:
        return None
    if code == Image.Resampling.NEAREST:
        black = (0,) * len(image.getbands())
        return image.then("scale_nearest", (height, width, (across / width, left, down / height, top), black))
    return image.then("resize_box", (height, width, int(code), box))


def reduced(image: LazyImage, factor: Any, box: Any) -> Image.Image | None:
    """``image.reduce(...)``, recorded; None as above."""
    factors = factor if isinstance(factor, (list, tuple)) else (factor, factor)
    if factors == (1, 1):
        return image.crop(box)
    try:
        across, down = map(operator.index, factors)
        edges = (0, 0, *image.size) if box is None else tuple(map(operator.index, box))
    except (TypeError, ValueError):
        return None
    if min(across, down) < 1 or not _is_box(edges, image.size):
        return None
    part: Any = image if edges == (0, 0, *image.size) else image.crop(edges)
    return part.then("reduce", (across, down))  # type: ignore[no-any-return]


class Thumbnail:
    """Stands for an image while Pillow's ``thumbnail`` finds out how it is to be resized."""

    def __init__(self, size: tuple[int, int], *arguments: Any) -> None:
        self.size = size
        self.width, self.height = size
        self.im = SimpleNamespace(mode="")
        self.resized: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        Image.Image.thumbnail(self, *arguments)  # type: ignore[arg-type]

    def draft(self, *_: object) -> None:
        """Files alone have drafts."""

    load = draft

    def resize(self, *args: Any, **kwargs: Any) -> Thumbnail:
        self.resized = args, kwargs
        return self
