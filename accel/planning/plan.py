"""Recipes to plans: how a batch of late images runs, as pure data that any backend can execute.

A recipe's steps on pixels become a chain of stages (``accel.planning.stages``), its steps on values a table. A backend
runs the stages of all images; those of one kind, whatever their parameters, it may run together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from accel.planning import values
from accel.planning.stages import Box, Stage, chain
from accel.planning.values import Patch
from accel.sources.recipe import Recipe, Source, Step
from accel.system.memory import Allocate


class Item(NamedTuple):
    """One image of the batch: where it goes, its stages (onto the decoded box) and its value table.

    The chain ends with a pass; ``table`` [channels, 256] is looked up after that one's levels, and ``patches`` take
    the place of what is there then.
    """

    position: int
    stages: tuple[Stage, ...]
    table: torch.Tensor
    patches: tuple[Patch, ...] = ()


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
    wanted: dict[tuple[int, int], tuple[Source, list[tuple[Box, Item]]]] = {}
    output = None
    for position, (source, steps, value_steps) in enumerate(recipes):
        header = source.header
        channels = _channels(header.mode, steps)
        box, stages, depth = chain((header.height, header.width), channels, steps)
        table = values.table(depth, value_steps)
        item = Item(position, stages, table, values.patches(depth, value_steps))
        wanted.setdefault((id(source), channels), (source, []))[1].append((box, item))
        this = (table.shape[0], *stages[-1].output_size, table.dtype)
        if output is not None and this != output:
            raise ValueError(f"images of one plan must come out alike, got {output} and {this}")
        output = this
    assert output is not None
    depth, height, width, dtype = output
    decodes = tuple([_decode(source, channels, items) for (_, channels), (source, items) in wanted.items()])
    return Plan(decodes, (len(recipes), depth, height, width), dtype, interleaved)


def _channels(mode: str, steps: Sequence[Step]) -> int:
    """Channels to decode: grey converted to RGB anywhere is three equal channels from the start."""
    return 3 if mode == "RGB" or any(name == "convert" for name, _ in steps) else 1


def _decode(source: Source, channels: int, items: list[tuple[Box, Item]]) -> Decode:
    """One source, of which everything that its items read is decoded."""
    union = items[0][0]
    if all(box == union for box, _ in items):
        return Decode(source, channels, union, tuple([item for _, item in items]))
    boxes = [box for box, _ in items]
    top, left = min(box[0] for box in boxes), min(box[1] for box in boxes)
    bottom, right = max(box[0] + box[2] for box in boxes), max(box[1] + box[3] for box in boxes)
    union = (top, left, bottom - top, right - left)
    shifted = []
    for box, item in items:
        first, *others = item.stages
        offset = (top - box[0], left - box[1], *union[2:])
        shifted.append(item._replace(stages=(first.onto(offset), *others)))
    return Decode(source, channels, union, tuple(shifted))
