"""Stages, which the steps on an image's pixels are turned into.

A chain consists of two kinds of stage, in any order, and begins and ends with a ``Pass``:

- ``Pass``, one fused geometric pass: view (crop, flip, pad) -> resample -> window (crop, flip, pad) -> levels;
- ``Effect``, one op whose output values depend on several input values: a statistic of the whole image, other
  channels, neighbours, or a warp. A backend has one kernel for each.

Passes merge wherever the pixels stay identical: another one is needed only where a second resampling must see the
rounded uint8 pixels of the first, or a fill colour must not go through the levels. The stage before, and the decoder,
make only what a stage reads.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.ops import OPS, Params, resample
from accel.ops.index import Index
from accel.ops.row import EffectKind, EffectOp, IndexOp, LutOp, ResampleOp
from accel.planning import lut
from accel.recipes.recipe import Step

Box = tuple[int, int, int, int]
"""(top, left, height, width) in pixels of the source."""

Levels = npt.NDArray[np.uint8]
"""A lookup table of levels, uint8 [channels, 256]."""


class Axis(NamedTuple):
    """One axis of a pass: a view of its input, resampled to ``size`` (if it differs), seen through a window."""

    view: Index
    size: int
    window: Index
    extent: resample.Extent | None = None  # the part of the view that is resampled; None: all of it

    @classmethod
    def as_it_is(cls, view: Index) -> Axis:
        """An axis that shows a view as it is."""
        return cls(view, view.length, Index.identity(view.length))

    @property
    def resampled(self) -> bool:
        return self.size != self.view.length or self.extent is not None

    def reads(self, code: int) -> tuple[int, int]:
        """The half-open range of input positions that the window needs; one position if it shows only the fill."""
        first, last = self.window.span()
        if self.resampled and first < last:
            first, last = resample.taps(code, self.view.length, self.size, first, last, self.extent)
        first, last = self.view.span_of(first, last)
        return (first, last) if first < last else (0, 1)

    def onto(self, offset: int) -> Axis:
        """The same axis for an input that begins ``offset`` positions later."""
        return self._replace(view=self.view.shift(-offset))

    def shows_all_of(self, length: int) -> bool:
        """Whether it shows an input of this length as it is."""
        return not self.resampled and self.view.is_identity(length) and self.window.is_identity(length)


class Pass(NamedTuple):
    """One fused pass over an image of uint8 pixels [height, width, channels].

    ``resample`` is the code of the filter (0: neither axis is resampled); ``fills`` are the colours that negative codes
    in the maps refer to, one value per channel; ``levels``, uint8 [channels, 256], is looked up last, for fills as well
    (None: the levels stay).
    """

    rows: Axis
    columns: Axis
    resample: int
    fills: tuple[tuple[int, ...], ...]
    levels: Levels | None = None

    @property
    def reads(self) -> Box:
        """The part of the input that is needed, (top, left, height, width)."""
        top, bottom = self.rows.reads(self.resample)
        left, right = self.columns.reads(self.resample)
        return top, left, bottom - top, right - left

    def onto(self, box: Box) -> Pass:
        """The same pass over an input that is only ``box`` of this one's."""
        return Pass(self.rows.onto(box[0]), self.columns.onto(box[1]), self.resample, self.fills, self.levels)

    def cropped(self, box: Box) -> Pass:
        """The pass that computes only ``box`` of its output."""
        rows = self.rows._replace(window=self.rows.window.crop(box[0], box[2], -1))
        columns = self.columns._replace(window=self.columns.window.crop(box[1], box[3], -1))
        return self._replace(rows=rows, columns=columns)

    @property
    def output_size(self) -> tuple[int, int]:
        return self.rows.window.length, self.columns.window.length

    def changes(self, size: tuple[int, int]) -> bool:
        """Whether its output differs from an input of this (height, width)."""
        same = self.rows.shows_all_of(size[0]) and self.columns.shows_all_of(size[1])
        return self.levels is not None or not same


class Effect(NamedTuple):
    """One ``EffectOp`` on uint8 pixels [height, width, channels].

    ``box`` is the part of the input that it is computed on: all of it, unless every output pixel depends only on the
    input pixel at the same place. ``channels`` is the number of input channels. ``levels``, uint8 [output channels,
    256], is looked up last (None: the levels stay).
    """

    op: str
    params: Params
    box: Box
    channels: int
    levels: Levels | None = None

    @property
    def kind(self) -> EffectKind:
        op = OPS[self.op]
        assert isinstance(op, EffectOp)
        return op.kind

    @property
    def by_pixel(self) -> bool:
        """Whether every output pixel depends only on the input pixel at the same place."""
        return self.kind == "mix"

    @property
    def reads(self) -> Box:
        return self.box

    def onto(self, box: Box) -> Effect:
        """The same effect on an input that is only ``box`` of this one's."""
        return self._replace(box=(self.box[0] - box[0], self.box[1] - box[1], *self.box[2:]))

    def cropped(self, box: Box) -> Effect:
        """The effect that computes only ``box`` of its output, if it can be computed on part of the input."""
        if not self.by_pixel:
            return self
        return self._replace(box=(self.box[0] + box[0], self.box[1] + box[1], *box[2:]))

    @property
    def output_size(self) -> tuple[int, int]:
        return OPS[self.op].size(self.box[2:], self.params)

    @property
    def output_channels(self) -> int:
        return OPS[self.op].channels(self.channels, self.params)


Stage = Pass | Effect


class Chain(NamedTuple):
    """The box that is read of one image, the stages relative to that, and the number of output channels."""

    box: Box
    stages: tuple[Stage, ...]
    channels: int


def chain(size: tuple[int, int], channels: int, steps: tuple[Step, ...]) -> Chain:
    """The stages for ``steps`` on an image of ``size`` (height, width), each cut to what the next reads."""
    resampled = -1
    for number, (name, _) in enumerate(steps):
        op = OPS[name]
        if op.holds_tensors:
            return _chain(size, channels, steps)
        if resampled < 0 and not isinstance(op, IndexOp):
            resampled = number if isinstance(op, ResampleOp) else 0
    if resampled < 1:
        return _remembered(size, channels, steps)
    current = _OpenPass(size, channels)  # crops differ for each image; the steps after a resize are often the same
    for name, params in steps[:resampled]:
        current.index(name, params)
    (height, width, code, *box), fills = steps[resampled][1], tuple(current.fills)
    shown, *later, depth = _behind(height, width, channels, fills, steps[resampled + 1 :])
    extents = resample.extents(box[0] if box else None, current.size)
    rows = Axis(current.view[0], height, shown.rows.window, extents[0])
    columns = Axis(current.view[1], width, shown.columns.window, extents[1])
    code = code if rows.resampled or columns.resampled else 0
    (top, bottom), (left, right) = rows.reads(code), columns.reads(code)
    first = Pass(rows.onto(top), columns.onto(left), code, shown.fills, shown.levels)
    return Chain((top, left, bottom - top, right - left), (first, *later), depth)


def _chain(size: tuple[int, int], channels: int, steps: tuple[Step, ...]) -> Chain:
    stages, depth = _closed(_OpenPass(size, channels), steps)
    first, *later = stages
    box = first.reads
    return Chain(box, (first.onto(box), *later), depth)


_remembered = lru_cache(maxsize=512)(_chain)


@lru_cache(maxsize=2048)  # more than RandAugment's pairs of ops, flipped or not; some 3 KB each
def _behind(
    height: int, width: int, channels: int, fills: tuple[tuple[int, ...], ...], steps: tuple[Step, ...]
) -> tuple[Any, ...]:
    """The chain after a resize to (height, width), with these fill colours before it: its pass, except what that reads,
    the stages after it, and the number of output channels."""
    current = _OpenPass((height, width), channels)
    current.fills = list(fills)
    current.resample(height, width, 1)  # any code will do: later steps join a resampling pass in the same way
    stages, depth = _closed(current, steps)
    return (*stages, depth)


def _closed(current: _OpenPass, steps: tuple[Step, ...]) -> tuple[list[Stage], int]:
    """The stages of an open pass and more steps, each cut to what the next reads, and the number of output channels."""
    done: list[Stage] = []
    for name, params in steps:
        op = OPS[name]
        if isinstance(op, IndexOp):
            if not current.index(name, params):
                current = current.close_into(done)
                current.index(name, params)
        elif isinstance(op, ResampleOp):
            if current.code or current.levels is not None:
                current = current.close_into(done)
            current.resample(*params)
        elif isinstance(op, LutOp):
            current.levels = lut.composed(current.levels, lut.table(name, params, current.channels))
        elif not op.keeps(current.channels, params):
            current = current.close_into(done)
            height, width = current.size
            effect = Effect(name, params, (0, 0, height, width), current.channels)
            done.append(effect)
            current = _OpenPass(effect.output_size, effect.output_channels)
    current.close_into(done, last=True)
    for i in range(len(done) - 1, 0, -1):
        before, after = done[i - 1], done[i]
        if isinstance(before, Pass) or before.by_pixel:
            box = after.reads
            done[i], done[i - 1] = after.onto(box), before.cropped(box)
    return done, current.channels


class _OpenPass:
    """A pass that more steps can still join."""

    def __init__(self, size: tuple[int, int], channels: int) -> None:
        self.input_size = size
        self.channels = channels
        self.view = self.window = (Index.identity(size[0]), Index.identity(size[1]))
        self.resampled_to = size
        self.extents: tuple[resample.Extent | None, ...] = (None, None)
        self.code = 0
        self.fills: list[tuple[int, ...]] = []
        self.levels: Levels | None = None

    @property
    def size(self) -> tuple[int, int]:
        return self.window[0].length, self.window[1].length

    def index(self, name: str, params: Params) -> bool:
        """Add an index op; False, with nothing done, if it brings in a colour that is no result of earlier levels."""
        op = OPS[name]
        assert isinstance(op, IndexOp)
        colour = [] if op.fill is None else [op.fill(params, self.channels)]
        code = -len(self.fills + colour)
        window = op.lower(self.window, params, code)
        if colour and self.levels is not None and any(axis.shows(code) for axis in window):
            levels = lut.before(self.levels, colour[0])
            if levels is None:
                return False
            colour = [levels]
        self.fills += colour
        self.window = window
        if not self.code:
            self.view = window
        return True

    def resample(self, height: int, width: int, code: int, box: tuple[float, ...] | None = None) -> None:
        self.code, self.resampled_to, self.extents = code, (height, width), resample.extents(box, self.size)
        self.window = (Index.identity(height), Index.identity(width))

    def close_into(self, done: list[Stage], *, last: bool = False) -> _OpenPass:
        """Add the pass, unless it changes nothing and is not needed, and open one on its output."""
        size, view, window = self.resampled_to, self.view, self.window
        if not self.code:  # nothing is resampled: a window on the input is all there is
            view = (Index.identity(size[0]), Index.identity(size[1]))
        rows, columns = map(Axis, view, size, window, self.extents)
        code = self.code if rows.resampled or columns.resampled else 0
        closed = Pass(rows, columns, code, tuple(self.fills), self.levels)
        moves = closed._replace(levels=None).changes(self.input_size)
        if last or not done or moves:
            done.append(closed)
        elif self.levels is not None:  # it only looks up levels, which the stage before it can do itself
            before = done[-1]
            done[-1] = before._replace(levels=lut.composed(before.levels, self.levels))
        return _OpenPass(closed.output_size, self.channels)
