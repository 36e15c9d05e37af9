"""Pillow's ``resize``, ``reduce`` and ``thumbnail`` as steps: which they are, and with which parameters.

Source: Pillow, PIL/Image.py and src/_imaging.c (_resize, _reduce). A box is four float32 numbers there.
"""

from __future__ import annotations

import math
import operator
from types import SimpleNamespace
from typing import Any

import numpy as np
from PIL import Image

from accel.ops.resample import SUPPORT
from accel.recipe import Step
from accel.system.private_names import private

private("PIL.Image", "Image._get_safe_box")

_LARGEST = 1 << 15

Steps = tuple[Step, ...]


def resize_steps(image: Image.Image, size: Any, resample: Any, box: Any, reducing_gap: Any) -> Steps | None:
    """``image.resize(...)`` as steps, () for a copy; None for what is left to Pillow, which also says what is wrong."""
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
        return _whole(image.size, width, height, code)
    edges = (0, 0, *image.size) if box is None else tuple(box)
    if not _is_box(edges, image.size):
        return None
    reduced: Steps = ()
    input_size = image.size
    if reducing_gap is not None:
        if not isinstance(reducing_gap, (int, float)) or not reducing_gap >= 1:
            return None
        factors = [
            int((edges[2 + axis] - edges[axis]) / length / reducing_gap) or 1
            for axis, length in enumerate((width, height))
        ]
        if code != Image.Resampling.NEAREST and max(factors) > 1:
            safe = image._get_safe_box((width, height), code, edges)
            reduced = _reduced(image.size, factors[0], factors[1], safe)
            edges = tuple((edges[n] - safe[n % 2]) / factors[n % 2] for n in range(4))
            input_size = (-((safe[0] - safe[2]) // factors[0]), -((safe[1] - safe[3]) // factors[1]))
            if not _is_box(edges, input_size):
                return None
    resized = _resized(input_size, len(image.getbands()), width, height, code, edges)
    return None if resized is None else reduced + resized


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


def reduce_steps(size: tuple[int, int], factor: Any, box: Any) -> Steps | None:
    """``image.reduce(...)`` of an image of this (width, height) as steps; None as above."""
    factors = factor if isinstance(factor, (list, tuple)) else (factor, factor)
    if factors == (1, 1):
        return None  # which Pillow has crop() or copy() do
    try:
        across, down = map(operator.index, factors)
        edges = (0, 0, *size) if box is None else tuple(map(operator.index, box))
    except (TypeError, ValueError):
        return None
    if min(across, down) < 1 or not _is_box(edges, size):
        return None
    return _reduced(size, across, down, edges)


def _reduced(size: tuple[int, int], across: int, down: int, edges: tuple[Any, ...]) -> Steps:
    left, top, right, bottom = edges
    cropped: Steps = () if edges == (0, 0, *size) else (("crop", (top, left, bottom - top, right - left)),)
    return (*cropped, ("reduce", (across, down)))


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
