"""Recipes to plans: how a batch of lazy images runs, as pure data that any backend can execute.

A recipe's steps on pixels become a chain of stages (``accel.planning.stages``), its steps on values a table. A backend
runs the stages of all images; those of one kind, whatever their parameters, it may run together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from accel.planning import values
from accel.planning.order import Steps, parts
from accel.planning.stages import Box, Stage, chain
from accel.planning.values import Patch
from accel.recipe import Recipe, Source, Step
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

    def target(self, allocate: Allocate) -> tuple[torch.Tensor, npt.NDArray[Any]]:
        """The same, and its bits in the order of its memory, for who writes them on the host."""
        result = self.empty(allocate)
        return result, bits(result.permute(0, 2, 3, 1) if self.interleaved else result)


_TYPES: dict[int, tuple[torch.dtype, Any]] = {
    1: (torch.uint8, np.uint8),
    2: (torch.int16, np.uint16),
    4: (torch.int32, np.uint32),
    8: (torch.int64, np.uint64),
}


def bits(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """The tensor's memory as unsigned integers of its item size: a table look-up moves bits, whatever they mean."""
    torch_type, numpy_type = _TYPES[tensor.dtype.itemsize]
    return tensor.view(torch_type).numpy().view(numpy_type)


def plan(recipes: Sequence[Recipe], *, interleaved: bool = False) -> Plan:
    """Plan a batch of images that come out with the same shape and dtype, up to what torchvision runs of their steps.

    Raises:
        ValueError: they do not, or there is none.
    """
    if not recipes:
        raise ValueError("a plan needs at least one image")
    plans = plans_of([(source, *parts(steps)) for source, steps in recipes], (interleaved,) * len(recipes))
    if len(plans) > 1:
        outputs = sorted({(*each.shape[1:], each.dtype) for each, _ in plans}, key=str)
        raise ValueError(f"images of one plan must come out alike, got {outputs}")
    return plans[0][0]


def plans_of(
    images: Sequence[tuple[Source, Steps, Steps, Steps]], interleaved: Sequence[bool]
) -> list[tuple[Plan, list[int]]]:
    """A plan for all images that come out alike and are to lie alike in memory; and which they are.

    Args:
        images: the source of each, and its steps (see ``parts``), of which the last are left out.
        interleaved: see ``Plan``, of each.
    """
    groups: dict[tuple[Any, ...], _Group] = {}
    for number, (source, steps, value_steps, _) in enumerate(images):
        header = source.header
        channels = _channels(header.mode, steps)
        box, stages, depth = chain((header.height, header.width), channels, steps)
        size = stages[-1].output_size
        table, patches = values.table_and_patches(depth, value_steps)
        key = depth, *size, table.dtype, interleaved[number]
        group = groups.get(key)
        if group is None:
            group = groups[key] = _Group([], {})
        item = Item(len(group.numbers), stages, table, patches)
        group.numbers.append(number)
        group.wanted.setdefault((id(source), channels), (source, []))[1].append((box, item))
    return [(_plan(group, *key), group.numbers) for key, group in groups.items()]


class _Group(NamedTuple):
    """Images of one plan: which they are, and what they want of each source."""

    numbers: list[int]
    wanted: dict[tuple[int, int], tuple[Source, list[tuple[Box, Item]]]]


def _plan(group: _Group, depth: int, height: int, width: int, dtype: torch.dtype, interleaved: bool) -> Plan:
    decodes = tuple([_decode(source, channels, items) for (_, channels), (source, items) in group.wanted.items()])
    return Plan(decodes, (len(group.numbers), depth, height, width), dtype, interleaved)


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
