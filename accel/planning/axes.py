"""The axes of many images at once: what is shown of each, of what it may be resampled to, as columns of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.ops.resample import SUPPORT, rows_first
from accel.planning.column_fields import LENGTH, SIZE
from accel.sources import Numbers

_Column = Any
"""int64 [images], or an int that is every image's."""


class Found(NamedTuple):
    boxes: Numbers
    axes: Numbers
    rows_first: npt.NDArray[np.bool_]
    shown: Numbers


class _Axis:
    """A window on ``size`` positions; ``whole``: nothing has been done to it."""

    def __init__(self, size: _Column) -> None:
        self.start: _Column = 0
        self.step: _Column = 1
        self.length = self.size = size
        self.whole = True

    def crop(self, offset: _Column, length: _Column, drawn: Any) -> bool:
        if drawn is not None:
            offset, length = np.where(drawn, offset, 0), np.where(drawn, length, self.length)
        if np.any(offset < 0) or np.any(offset + length > self.length) or np.any(length < 1):
            return False
        self.start, self.length, self.whole = self.start + self.step * offset, length, False
        return True

    def flip(self, drawn: Any) -> bool:
        last = self.start + self.step * (self.length - 1)
        if drawn is None:
            self.start, self.step = last, -self.step
        else:
            self.start, self.step = np.where(drawn, last, self.start), np.where(drawn, -self.step, self.step)
        self.whole = False
        return True

    def pad(self, before: int, after: int) -> bool:
        if not self.whole:
            return False
        self.start, self.length, self.whole = -before, self.length + (before + after), False
        return True

    def span(self, first: _Column, last: _Column) -> tuple[_Column, _Column]:
        """The half-open range of positions that its positions ``first <= p < last`` show."""
        one, other = self.start + self.step * first, self.start + self.step * (last - 1)
        return np.minimum(one, other), np.maximum(one, other) + 1


class Axes:
    """Both axes of all images: what is shown of the source, and of what that is resampled to, if it is."""

    def __init__(self, heights: _Column, widths: _Column) -> None:
        self._views: list[_Axis] | None = None
        self._windows = [_Axis(heights), _Axis(widths)]

    def resize(self, height: _Column, width: _Column, drawn: Any) -> None:
        self._views = self._windows
        if drawn is not None:
            rows, columns = self._views
            height, width = np.where(drawn, height, rows.length), np.where(drawn, width, columns.length)
        self._windows = [_Axis(height), _Axis(width)]

    def index(self, name: str, params: Sequence[Any], drawn: Any) -> bool:
        """Add an op; False: columns cannot say what it does to some image."""
        rows, columns = self._windows
        if name == "crop":
            top, left, height, width = params
            return rows.crop(top, height, drawn) and columns.crop(left, width, drawn)
        if name == "pad":
            left, top, right, bottom = params[:4]
            return rows.pad(top, bottom) and columns.pad(left, right)
        return (columns if name == "hflip" else rows).flip(drawn)

    def finished(self, code: int, count: int) -> Found:
        boxes, axes = np.empty((4, count), np.int64), np.empty((2, 6, count), np.int64)
        shown = np.empty((count, 2), np.int64)
        for axis, window in enumerate(self._windows):
            shown[:, axis] = window.length
            view = _Axis(window.size) if self._views is None else self._views[axis]
            first, last = window.span(0, window.length)
            first, last = np.maximum(first, 0), np.minimum(last, window.size)
            empty = first >= last
            if self._views is not None:
                low, high = _taps(code, view.length, window.size, first, last)
                same = view.length == window.size
                first, last = np.where(same, first, low), np.where(same, last, high)
            first, last = view.span(first, last)
            first, last = np.where(empty, 0, first), np.where(empty, 1, last)
            boxes[axis], boxes[axis + 2] = first, last - first
            numbers = view.start - first, view.step, view.length, window.size, window.start, window.step
            for number, value in enumerate(numbers):
                axes[axis, number] = value
        (rows, columns), ordered = axes[:, LENGTH], np.zeros(count, bool)
        if code and self._views is not None:
            ordered[:] = rows_first(code, rows, columns, axes[0, SIZE], axes[1, SIZE])
        turned = np.ascontiguousarray(axes.transpose(0, 2, 1))
        return Found(np.ascontiguousarray(boxes.T), turned, ordered, shown)


def _taps(code: int, size_in: _Column, size_out: _Column, first: _Column, last: _Column) -> tuple[_Column, _Column]:
    """``resample.taps`` of many axes, all of which is resampled: the same float64 arithmetic."""
    scale = size_in / size_out
    support = SUPPORT[code & 7] * np.maximum(scale, 1.0)
    low = np.asarray((first + 0.5) * scale - support + 0.5).astype(np.int64)  # towards zero, as int() does
    high = np.asarray((last - 0.5) * scale + support + 0.5).astype(np.int64)
    return np.maximum(low, 0), np.minimum(high, size_in)
