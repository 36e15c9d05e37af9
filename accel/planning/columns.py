"""Plans of rows: what ``stages.chain`` makes of one recipe, for many of one structure at once, as columns of numbers.

That is for one pass from the source to the values: crops and flips, a resize, crops and flips behind it, or a padding
with a crop of that. Rows of any other structure, or with a crop that shows more than the image, are planned one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from accel.ops import OPS
from accel.ops.index import Index
from accel.ops.resample import SUPPORT, Aten, rows_first
from accel.ops.row import ResampleOp, TensorOp
from accel.planning import plan as planning
from accel.planning import values
from accel.planning.column_fields import LENGTH, SIZE
from accel.planning.order import Steps, parts
from accel.planning.plan import Decode, Item, Plan
from accel.planning.stages import Axis, Pass, Stage
from accel.rows import Ahead, Form, Numbers, Rows, Slot, Structure


class Columns(NamedTuple):
    """The numbers of a plan of rows, whose images are one ``Pass`` each.

    Attributes:
        rows: what was planned. channels: of the decoded pixels, and of the result.
        boxes: int64 [images, 4], what to decode: top, left, height, width.
        axes: int64 [2, images, 6], of the rows and of the columns.
        resample: the code of the filter. rows_first: bool [images], see ``resample.rows_first``.
        fill: the colour that is shown outside, if any window gets there.
        table: the values of levels, [channels, 256].
    """

    rows: Rows
    channels: int
    boxes: Numbers
    axes: Numbers
    resample: int
    rows_first: npt.NDArray[np.bool_]
    fill: tuple[int, ...] | None
    table: torch.Tensor

    @property
    def resampled(self) -> npt.NDArray[np.bool_]:
        """Which axes are resampled: [2, images]."""
        found: npt.NDArray[np.bool_] = self.axes[..., LENGTH] != self.axes[..., SIZE]
        return found


class ColumnPlan(Plan):
    """A plan of rows. Who does not know its ``columns`` runs its ``decodes``, made when they are asked for."""

    rows: Rows
    ahead: Ahead | None = None

    @classmethod
    def of(cls, columns: Columns, shape: tuple[int, int, int, int], interleaved: bool) -> ColumnPlan:
        made = cls((), shape, columns.table.dtype, interleaved)
        made.rows, made.columns = columns.rows, columns
        return made

    @cached_property
    def columns(self) -> Columns:
        planned: Any = _planned(self.rows, self.interleaved)
        return planned.columns  # type: ignore[no-any-return]

    @cached_property
    def decodes(self) -> tuple[Decode, ...]:
        return planning.plan(list(self.rows), interleaved=self.interleaved).decodes

    @cached_property
    def sources(self) -> list[Decode]:
        """What to decode, in the order of the images: of an item no more than its place."""
        return [self.source(position) for position in range(len(self.rows))]

    def source(self, position: int) -> Decode:
        """One of ``sources``."""
        rows, channels, boxes, *_, table = self.columns
        top, left, height, width = boxes[position].tolist()
        return Decode(rows.sources[position], channels, (top, left, height, width), (Item(position, (), table),))

    @property
    def example(self) -> Stage:
        """A pass with the filter of all."""
        whole, program = Axis.as_it_is(Index.identity(1)), _program(self.rows.structure)
        return Pass(whole, whole, 0 if program is None else program.filter, ())

    def _replace(self, **changed: Any) -> Plan:  # type: ignore[override]
        return Plan(self.decodes, *self[1:])._replace(**changed)


def plan(rows: Rows, *, interleaved: bool = False) -> ColumnPlan | None:
    """Plan rows that come out with the same shape; None where they do not, or columns cannot say what becomes of them.

    Then they are to be planned one by one.
    """
    if rows.ahead is None or interleaved:
        return _planned(rows, interleaved)
    made = ColumnPlan((), rows.ahead.shape, rows.ahead.dtype, False)
    made.rows, made.ahead = rows, rows.ahead
    return made


def _planned(rows: Rows, interleaved: bool) -> ColumnPlan | None:
    program = _program(rows.structure)
    if program is None or not len(rows):
        return None
    heights, widths, colour = rows.sizes()
    if program.converted is not None:  # grey becomes RGB
        colour = colour | (rows.numbers[:, program.converted] != 0 if program.converted >= 0 else True)
    channels = 3 if colour[0] else 1
    if (colour != colour[0]).any() or not rows.each_apart() or rows.of_lazy_pixels():
        return None
    axes = _Axes(heights, widths)
    for form in program.forms:
        params: list[Any] = [
            rows.numbers[:, value.column] if isinstance(value, Slot) else value for value in form.params
        ]
        drawn = None if form.drawn < 0 else rows.numbers[:, form.drawn] != 0
        if isinstance(OPS[form.name], ResampleOp):
            axes.resize(params[0], params[1], drawn)
        elif not axes.index(form.name, params, drawn):
            return None
    found = axes.finished(program.filter, len(rows))
    if found is None:
        return None
    table = values.table(channels, program.values)
    fill = None if program.fill is None else (tuple(program.fill) * channels)[:channels]
    height, width = found.window
    columns = Columns(rows, channels, found.boxes, found.axes, program.filter, found.rows_first, fill, table)
    return ColumnPlan.of(columns, (len(rows), channels, height, width), interleaved)


# -- structures ---------------------------------------------------------------------------------------------


class _Program(NamedTuple):
    """A structure that columns can do: how grey is converted (None, for all: -1, or a column), steps on pixels but
    for that, the code of the filter (0: none), the fill colour (if it has one), and steps on values."""

    converted: int | None
    forms: tuple[Form, ...]
    filter: int
    fill: tuple[int, ...] | None
    values: Steps


@lru_cache(maxsize=256)
def _program(structure: Structure) -> _Program | None:
    _, on_values, after = parts(tuple([(form.name, form.params) for form in structure.forms]))
    forms = [form for form in structure.forms if not isinstance(OPS[form.name], TensorOp)]
    drawn = [form.drawn >= 0 for form in structure.forms if isinstance(OPS[form.name], TensorOp)]
    slots = [isinstance(value, Slot) for _, params in on_values for value in params]
    if after or any(drawn) or any(slots) or values.erases(on_values):
        return None
    converted = None
    if forms and forms[0].name == "convert" and forms[0].params == ("RGB",):
        converted = forms.pop(0).drawn
    resized, fill, code = False, None, 0
    for form in forms:
        op, params = OPS[form.name], form.params
        if isinstance(op, ResampleOp):
            code = params[2]
            known = not isinstance(code, Slot) and code & 7 in SUPPORT and code < Aten.BILINEAR_POINT
            if resized or form.name != "resize" or not known:
                return None
            resized = True
        elif form.name not in ("crop", "hflip", "vflip", "pad") or (form.drawn >= 0 and form.name == "pad"):
            return None
        elif form.name == "pad":
            later = resized or not any(isinstance(OPS[each.name], ResampleOp) for each in forms)
            if fill is not None or not later or any(isinstance(each, Slot) for each in params):
                return None
            if params[4] != "constant" or min(params[:4]) < 0:
                return None
            fill = params[5] or (0,)
    return _Program(converted, tuple(forms), code, fill, on_values)


# -- numbers ------------------------------------------------------------------------------------------------

_Column = Any
"""int64 [images], or an int that is every image's."""


class _Found(NamedTuple):
    boxes: Numbers
    axes: Numbers
    rows_first: npt.NDArray[np.bool_]
    window: tuple[int, int]


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


class _Axes:
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

    def finished(self, code: int, count: int) -> _Found | None:
        boxes, axes = np.empty((4, count), np.int64), np.empty((2, 6, count), np.int64)
        lengths = []
        for axis, window in enumerate(self._windows):
            lengths.append(np.asarray(window.length).reshape(-1))
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
        height, width = lengths
        if (height != height[0]).any() or (width != width[0]).any():
            return None
        (rows, columns), ordered = axes[:, LENGTH], np.zeros(count, bool)
        if code and self._views is not None:
            ordered[:] = rows_first(code, rows, columns, axes[0, SIZE], axes[1, SIZE])
        turned = np.ascontiguousarray(axes.transpose(0, 2, 1))
        return _Found(np.ascontiguousarray(boxes.T), turned, ordered, (int(height[0]), int(width[0])))


def _taps(code: int, size_in: _Column, size_out: _Column, first: _Column, last: _Column) -> tuple[_Column, _Column]:
    """``resample.taps`` of many axes, all of which is resampled: the same float64 arithmetic."""
    scale = size_in / size_out
    support = SUPPORT[code & 7] * np.maximum(scale, 1.0)
    low = np.asarray((first + 0.5) * scale - support + 0.5).astype(np.int64)  # towards zero, as int() does
    high = np.asarray((last - 0.5) * scale + support + 0.5).astype(np.int64)
    return np.maximum(low, 0), np.minimum(high, size_in)
