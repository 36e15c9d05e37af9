"""Recipes to plans: how a batch of late images runs, as pure data that any backend can execute.

A recipe's steps on pixels become a chain of stages; each is one fused pass

    view (crop, flip, pad) -> resample -> window (crop, flip, pad)

and needs another only where a second resampling must see the rounded uint8 pixels of the first. Only what the
window shows is asked of the resampling, of the stage before, and of the decoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch

from accel import resample, values
from accel.index import Index
from accel.memory import Allocate
from accel.ops import OPS
from accel.recipe import Recipe, Source, Step

Box = tuple[int, int, int, int]
"""(top, left, height, width) in pixels of the source."""


class Axis(NamedTuple):
    """One axis of a stage: a view of its input, resampled to ``size`` (if it differs), seen through a window."""

    view: Index
    size: int
    window: Index

    @property
    def resampled(self) -> bool:
        return self.size != self.view.length

    def reads(self, code: int) -> tuple[int, int]:
        """The half-open range of input positions that the window needs; one of them where all that shows is fill."""
        first, last = self.window.span()
        if self.resampled and first < last:
            first, last = resample.taps(code, self.view.length, self.size, first, last)
        first, last = self.view.span_of(first, last)
        return (first, last) if first < last else (0, 1)

    def onto(self, offset: int) -> Axis:
        """The same axis of an input that begins ``offset`` positions later."""
        return self._replace(view=self.view.shift(-offset))


class Stage(NamedTuple):
    """One fused pass over an image of uint8 pixels [height, width, channels].

    ``resample`` is Pillow's code of the filter (0: neither axis is resampled); ``fills`` are the colours that
    negative codes in the maps name, one value per channel.
    """

    rows: Axis
    columns: Axis
    resample: int
    fills: tuple[tuple[int, ...], ...]

    @property
    def reads(self) -> Box:
        """The part of the input that is needed."""
        top, bottom = self.rows.reads(self.resample)
        left, right = self.columns.reads(self.resample)
        return top, left, bottom - top, right - left

    def onto(self, box: Box) -> Stage:
        """The same stage of an input of which only ``box`` is at hand."""
        return self._replace(rows=self.rows.onto(box[0]), columns=self.columns.onto(box[1]))

    def cropped(self, box: Box) -> Stage:
        """The stage that computes only ``box`` of its output."""
        rows = self.rows._replace(window=self.rows.window.crop(box[0], box[2], -1))
        columns = self.columns._replace(window=self.columns.window.crop(box[1], box[3], -1))
        return self._replace(rows=rows, columns=columns)

    @property
    def output_size(self) -> tuple[int, int]:
        return self.rows.window.length, self.columns.window.length


class Item(NamedTuple):
    """One image of the batch: where it goes, its stages (onto the decoded box) and its value table."""

    position: int
    stages: tuple[Stage, ...]
    table: torch.Tensor


class Decode(NamedTuple):
    """One source, decoded once for all images made from it: ``box`` of it, to ``channels`` channels."""

    source: Source
    channels: int
    box: Box
    items: tuple[Item, ...]


class Plan(NamedTuple):
    """A batch: what to decode and what to make of it.

    ``shape`` is (images, channels, height, width). ``interleaved``: the memory of an image is ordered
    [height, width, channels] (torch's channels_last), else [channels, height, width].
    """

    decodes: tuple[Decode, ...]
    shape: tuple[int, int, int, int]
    dtype: torch.dtype
    interleaved: bool

    def empty(self, allocate: Allocate) -> torch.Tensor:
        """Uninitialised host memory for the result: [images, channels, height, width], strided as planned."""
        count, channels, height, width = self.shape
        shape = (count, height, width, channels) if self.interleaved else self.shape
        result = allocate(shape, self.dtype)
        return result.permute(0, 3, 1, 2) if self.interleaved else result


def plan(recipes: Sequence[Recipe], *, interleaved: bool = False) -> Plan:
    """Plan a batch of images that come out with the same shape and dtype.

    Raises:
        ValueError: they do not, or there is none.
    """
    if not recipes:
        raise ValueError("a plan needs at least one image")
    wanted: dict[tuple[int, int], list[Item]] = {}
    sources: dict[int, Source] = {}
    outputs: set[tuple[int, int, int, torch.dtype]] = set()
    for position, recipe in enumerate(recipes):
        source, steps, value_steps = recipe
        channels = _channels(source.header.mode, steps)
        chain = stages((source.header.height, source.header.width), channels, steps)
        table = values.table(channels, value_steps)
        sources[id(source)] = source
        wanted.setdefault((id(source), channels), []).append(Item(position, chain, table))
        outputs.add((table.shape[0], *chain[-1].output_size, table.dtype))
    if len(outputs) > 1:
        raise ValueError(f"images of one plan must come out alike, got {sorted(outputs, key=str)}")
    depth, height, width, dtype = outputs.pop()
    decodes = tuple(_decode(sources[key], channels, items) for (key, channels), items in wanted.items())
    return Plan(decodes, (len(recipes), depth, height, width), dtype, interleaved)


@lru_cache(maxsize=512)
def stages(size: tuple[int, int], channels: int, steps: tuple[Step, ...]) -> tuple[Stage, ...]:
    """The fused passes for ``steps`` on an image of ``size`` (height, width), each cut to what the next reads."""
    chain: list[Stage] = []
    view = window = (Index.identity(size[0]), Index.identity(size[1]))
    code, fills = 0, []
    for name, params in steps:
        op = OPS[name]
        if op.kind == "index":
            assert op.lower is not None
            if op.fill is not None:
                fills.append(op.fill(params, channels))
            window = op.lower(window, params, -len(fills))
            if not code:
                view = window
        elif op.kind == "resample":
            height, width, wanted = params
            if code:
                chain.append(_stage(view, size, window, code, fills))
                view = (Index.identity(window[0].length), Index.identity(window[1].length))
                fills = []
            code, size = wanted, (height, width)
            window = (Index.identity(height), Index.identity(width))
    if not code:  # nothing is resampled: a window on the input is all there is
        view = (Index.identity(size[0]), Index.identity(size[1]))
    chain.append(_stage(view, size, window, code, fills))
    for i in range(len(chain) - 1, 0, -1):
        box = chain[i].reads
        chain[i], chain[i - 1] = chain[i].onto(box), chain[i - 1].cropped(box)
    return tuple(chain)


def _stage(
    view: tuple[Index, Index],
    size: tuple[int, int],
    window: tuple[Index, Index],
    code: int,
    fills: list[tuple[int, ...]],
) -> Stage:
    rows, columns = Axis(view[0], size[0], window[0]), Axis(view[1], size[1], window[1])
    return Stage(rows, columns, code if rows.resampled or columns.resampled else 0, tuple(fills))


def _channels(mode: str, steps: Sequence[Step]) -> int:
    """Channels to decode: grey converted to RGB anywhere is three equal channels from the start."""
    for name, params in steps:
        if name == "convert":
            mode = params[0]
    return 1 if mode == "L" else 3


def _decode(source: Source, channels: int, items: list[Item]) -> Decode:
    boxes = [item.stages[0].reads for item in items]
    top, left = min(box[0] for box in boxes), min(box[1] for box in boxes)
    bottom, right = max(box[0] + box[2] for box in boxes), max(box[1] + box[3] for box in boxes)
    union = (top, left, bottom - top, right - left)
    shifted = tuple(item._replace(stages=(item.stages[0].onto(union), *item.stages[1:])) for item in items)
    return Decode(source, channels, union, shifted)
