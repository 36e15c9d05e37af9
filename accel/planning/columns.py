"""Plans of rows: what ``stages.chain`` makes of one recipe, made for many of one structure at once, as columns.

They have one pass from the source to the values: crops and flips, a resize, crops and flips after it, or a padding with
a crop of that. Rows of any other structure, or with a crop that reaches beyond the image, are planned one by one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from accel.ops import OPS
from accel.ops.index import Index
from accel.ops.resample import PILLOW, SUPPORT, Aten
from accel.ops.row import ResampleOp, TensorOp
from accel.planning import column_fields as of
from accel.planning import values
from accel.planning.column_fields import AXIS, FOUND, LENGTH, SIZE
from accel.planning.order import Steps, parts
from accel.planning.plan import Decode, Item, LatePlan, bits
from accel.planning.stages import Axis, Pass, Stage
from accel.recipes.rows import Form, Numbers, Rows, Slot, Structure
from accel.system.fork import cached_property
from accel.system.memory import Allocate
from accel.system.native import units

if TYPE_CHECKING:
    from typing_extensions import Self

UNIT = units.Unit("columns", "planning/column_kernels.py", "planning/column_fields.py", seconds=0.3)
_SIGNATURE = "i8[2] i8[2] i8[2] int float int i8[2]w i8[2]w i8[3]w i8[2]w u1[1]w i8[1]w"
_plan_axes = UNIT.function("planning.column_kernels", "plan_axes", _SIGNATURE)


class Columns(NamedTuple):
    """The numbers of a plan of rows, whose images are one ``Pass`` each.

    Attributes:
        rows: the planned rows. channels: the channels of the decoded pixels and of the result.
        boxes: int64 [images, 4], the boxes to decode: top, left, height, width.
        axes: int64 [2, images, 6], the images' rows and columns (``column_fields``).
        parts: int64 [images, 3], the offset of each image's values in memory, its height and its width.
        largest: the largest height and width of a result. alike: whether all results have this size.
        longest: the largest of the numbers in ``axes``.
        resample: the code of the filter. rows_first: bool [images], see ``resample.rows_first``.
        fill: the colour shown outside the image; None: no window reaches there.
        table: the values of the levels, [channels, 256].
    """

    rows: Rows
    channels: int
    boxes: Numbers
    axes: Numbers
    parts: Numbers
    largest: tuple[int, int]
    alike: bool
    longest: int
    resample: int
    rows_first: npt.NDArray[np.bool_]
    fill: tuple[int, ...] | None
    table: torch.Tensor

    @property
    def resampled(self) -> npt.NDArray[np.bool_]:
        """Whether each axis is resampled, bool [2, images]."""
        found: npt.NDArray[np.bool_] = self.axes[..., LENGTH] != self.axes[..., SIZE]
        return found


class ColumnPlan(LatePlan):
    """A plan of rows. A backend that cannot run its ``columns`` runs its ``decodes``, which are made on access."""

    rows: Rows
    columns: Columns

    @classmethod
    def of(cls, columns: Columns, interleaved: bool) -> Self:
        shape = len(columns.boxes), columns.channels, *columns.largest
        made = cls((), shape, columns.table.dtype, interleaved)
        made.recipes = made.rows = columns.rows
        made.columns = columns
        return made

    @cached_property
    def sources(self) -> list[Decode]:
        """The sources to decode, in the order of the images; each has one item, with no more than its place."""
        return [self.source(position) for position in range(len(self.rows))]

    def source(self, position: int) -> Decode:
        """The one of ``sources`` at this position."""
        rows, channels, boxes, *_, table = self.columns
        top, left, height, width = boxes[position].tolist()
        return Decode(rows.sources[position], channels, (top, left, height, width), (Item(position, (), table),))

    @property
    def example(self) -> Stage:
        """A pass with the filter that all images have."""
        return _example(self.rows.structure)


class ApartPlan(ColumnPlan):
    """A plan of rows whose results may differ in size; ``shape`` has the largest height and width.

    Its result is one piece of memory, [values], in which each image has its part (``Columns.parts``).
    """

    def target(self, allocate: Allocate) -> tuple[torch.Tensor, npt.NDArray[Any]]:
        begin, height, width = self.columns.parts[-1].tolist()
        result = allocate((begin + height * width * self.columns.channels,), self.dtype)
        return result, bits(result)


def plan(rows: Rows, *, interleaved: bool = False) -> ColumnPlan | None:
    """Plan rows whose results have the same shape.

    None if they have not, or if columns cannot express them: they must then be planned one by one.
    """
    columns = _columns(rows)
    return ColumnPlan.of(columns, interleaved) if columns is not None and columns.alike else None


def plan_apart(rows: Rows) -> ApartPlan | None:
    """Plan rows with results of any sizes, interleaved; None as for ``plan``."""
    columns = _columns(rows)
    return None if columns is None else ApartPlan.of(columns, True)


def _columns(rows: Rows) -> Columns | None:
    program, count = _program(rows.structure), len(rows)
    if program is None or not count or not rows.each_apart() or rows.of_lazy_pixels():
        return None
    boxes, parts, axes = (np.empty(shape, np.int64) for shape in ((count, 4), (count, 3), (2, count, AXIS)))
    inputs = program.codes, rows.numbers, rows.table(), program.converted, program.support, program.order
    ordered, found = np.empty(count, np.bool_), np.empty(FOUND, np.int64)
    if _plan_axes(*inputs, np.empty((of.WORK, 4), np.int64), boxes, axes, parts, ordered.view(np.uint8), found):
        return None
    channels, height, width, alike, longest = found.tolist()
    of_values = _values(rows.structure, channels)
    of_all = (height, width), bool(alike), longest
    return Columns(rows, channels, boxes, axes, parts, *of_all, program.filter, ordered, *of_values)


@lru_cache(maxsize=256)
def _values(structure: Structure, channels: int) -> tuple[tuple[int, ...] | None, torch.Tensor]:
    """The fill colour (None: none) and the table of values, for images of so many channels."""
    program = _program(structure)
    assert program is not None
    fill = None if program.fill is None else (tuple(program.fill) * channels)[:channels]
    return fill, values.table(channels, program.values)


@lru_cache(maxsize=256)
def _example(structure: Structure) -> Stage:
    whole, program = Axis.as_it_is(Index.identity(1)), _program(structure)
    return Pass(whole, whole, 0 if program is None else program.filter, ())


# -- structures ---------------------------------------------------------------------------------------------


class _Program(NamedTuple):
    """A structure that columns can express: whether grey is converted (``NEVER``, -1: always, else a column), the other
    steps on pixels (as compiled code takes them), the code of the filter (0: none), its support, the rule for the order
    of the axes, the fill colour (None: none), and the steps on values."""

    converted: int
    codes: Numbers
    filter: int
    support: float
    order: int
    fill: tuple[int, ...] | None
    values: Steps


@lru_cache(maxsize=256)
def _program(structure: Structure) -> _Program | None:
    _, on_values, after = parts(tuple([(form.name, form.params) for form in structure.forms]))
    forms = [form for form in structure.forms if not isinstance(OPS[form.name], TensorOp)]
    others = [form for form in structure.forms if isinstance(OPS[form.name], TensorOp)]
    if after or not all(map(_is_alike, others)) or values.erases(on_values):
        return None
    converted = forms.pop(0).drawn if forms and forms[0][:2] == ("convert", ("RGB",)) else of.NEVER
    resizes = [number for number, form in enumerate(forms) if isinstance(OPS[form.name], ResampleOp)]
    pads = [number for number, form in enumerate(forms) if form.name == "pad"]
    early = bool(resizes and pads) and pads[0] < resizes[0]
    if early or len(resizes) > 1 or len(pads) > 1 or not all(map(_is_known, forms)):
        return None
    code = forms[resizes[0]].params[2] if resizes else 0
    fill = (forms[pads[0]].params[5] or (0,)) if pads else None
    codes = np.array([*map(_codes, forms)], np.int64).reshape(len(forms), of.FORM)
    return _Program(converted, codes, code, SUPPORT.get(code & 7, 0.0), order_of(code), fill, on_values)


def _is_alike(form: Form) -> bool:
    """Whether a step is the same for all images."""
    return form.drawn < 0 and not any(isinstance(each, Slot) for each in form.params)


def _is_known(form: Form) -> bool:
    """Whether columns know a step on pixels: the filter of a resize; of pads, those of all images by one colour."""
    if form.name == "resize":
        code = form.params[2]
        return not isinstance(code, Slot) and code & 7 in SUPPORT and code < Aten.BILINEAR_POINT
    if form.name == "pad":
        return _is_alike(form) and form.params[4] == "constant" and min(form.params[:4]) >= 0
    return form.name in _KINDS


def order_of(resample: int, pillow: tuple[int, ...] = PILLOW) -> int:
    """The rule (``column_fields``) of ``resample.rows_first`` for this version of Pillow (major, minor)."""
    if resample not in SUPPORT or pillow < (12, 2):
        return of.COLUMNS_FIRST
    return of.BY_LOSS if pillow >= (13, 0) else of.BY_SHAPE


_KINDS = {"crop": of.CROP, "hflip": of.HFLIP, "vflip": of.VFLIP, "pad": of.PAD, "resize": of.RESIZE}


def _codes(form: Form) -> list[int]:
    """The row of a form for compiled code (``column_fields``)."""
    codes = [_KINDS[form.name], form.drawn]
    for value in (*form.params, 0, 0, 0, 0)[:4]:
        codes += (value.column, 0) if isinstance(value, Slot) else (-1, int(value))
    return codes
