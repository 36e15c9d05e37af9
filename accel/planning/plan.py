"""Recipes to plans: how a batch of lazy images runs, as pure data that any backend can execute.

A recipe's steps on pixels become a chain of stages (``accel.planning.stages``), its steps on values a table. A backend
runs the stages of all images; it may run stages of one kind together, whatever their parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy.typing as npt
import torch

from accel.planning import values
from accel.planning.order import Steps, parts
from accel.planning.stages import Box, Stage, chain
from accel.planning.values import Patch
from accel.recipes.arrived import Arrived
from accel.recipes.recipe import Recipe, Source
from accel.system.fork import cached_property
from accel.system.memory import Allocate


class Item(NamedTuple):
    """One image of the batch: its position in the batch, its stages (relative to the decoded box), its value table.

    The chain ends with a pass; ``table`` [channels, 256] is looked up after that pass's levels, and then ``patches``
    replace some of the values.
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
    """The plan of a batch: what to decode, and the stages of its images.

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
        """``empty``, and its bits in memory order (see ``bits``), for code that writes them on the host."""
        result = self.empty(allocate)
        return result, bits(result.permute(0, 2, 3, 1) if self.interleaved else result)


class LatePlan(Plan):
    """A plan whose ``decodes`` are made on access, from ``recipes``."""

    recipes: Sequence[Recipe]

    @cached_property
    def decodes(self) -> tuple[Decode, ...]:
        return plan(list(self.recipes), interleaved=self.interleaved).decodes

    def _replace(self, **changed: Any) -> Plan:  # type: ignore[override]
        return Plan(self.decodes, *self[1:])._replace(**changed)


class FinishedPlan(LatePlan):
    """The plan of a batch that a worker has finished."""

    recipes: Arrived

    @classmethod
    def of(cls, recipes: Arrived) -> FinishedPlan:
        ahead = recipes.ahead
        made = cls((), ahead.shape, ahead.dtype, ahead.interleaved)
        made.recipes = recipes
        return made


_BITS = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32, 8: torch.uint64}


def bits(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """A tensor's memory as unsigned integers of its item size: table look-ups only move bits."""
    values: npt.NDArray[Any] = tensor.view(_BITS[tensor.dtype.itemsize]).numpy()
    return values


def plan(recipes: Sequence[Recipe], *, interleaved: bool = False) -> Plan:
    """Plan a batch of images with results of the same shape and dtype, up to the steps that torchvision runs.

    Raises:
        ValueError: shapes or dtypes differ, or there are no images.
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
    """A plan for each group of images with the same shape, dtype and memory order, and the images' numbers.

    Args:
        images: each image's source and its steps (see ``parts``); the last ones are left out.
        interleaved: the memory order of each, see ``Plan``.
    """
    groups: dict[tuple[Any, ...], tuple[list[int], _Wanted]] = {}
    for number, (source, steps, value_steps, _) in enumerate(images):
        header = source.header
        # grey that is converted to RGB at any step has three equal channels from the start
        channels = 3 if header.channels == 3 or any(name == "convert" for name, _ in steps) else 1
        box, stages, depth = chain((header.height, header.width), channels, steps)
        size = stages[-1].output_size
        table, patches = values.table_and_patches(depth, value_steps)
        key = depth, *size, table.dtype, interleaved[number]
        numbers, wanted = groups.setdefault(key, ([], {}))
        item = Item(len(numbers), stages, table, patches)
        wanted.setdefault((id(source), channels), (source, []))[1].append((box, item))
        numbers.append(number)
    plans = []
    for (depth, height, width, dtype, channels_last), (numbers, wanted) in groups.items():
        decodes = tuple([_decode(source, channels, items) for (_, channels), (source, items) in wanted.items()])
        plans.append((Plan(decodes, (len(numbers), depth, height, width), dtype, channels_last), numbers))
    return plans


_Wanted = dict[tuple[int, int], tuple[Source, list[tuple[Box, Item]]]]
"""The boxes and items of each source, by its id and the number of channels."""


def _decode(source: Source, channels: int, items: list[tuple[Box, Item]]) -> Decode:
    """The decode of one source: the smallest box that has everything its items read."""
    union = items[0][0]
    if all(box == union for box, _ in items):
        return Decode(source, channels, union, tuple([item for _, item in items]))
    top, left = (min(box[axis] for box, _ in items) for axis in (0, 1))
    bottom, right = (max(box[axis] + box[axis + 2] for box, _ in items) for axis in (0, 1))
    height, width, shifted = bottom - top, right - left, []
    for box, item in items:
        first, *others = item.stages
        shifted.append(item._replace(stages=(first.onto((top - box[0], left - box[1], height, width)), *others)))
    return Decode(source, channels, (top, left, height, width), tuple(shifted))
