"""Recipes in and out of a message: files, pixels and tensors of a batch as one uint8 tensor, the rest as plain data.

In a DataLoader worker that tensor lies in shared memory, so only a handle crosses the process border. Nothing
here decodes or can fail on bad pixels: an exception while a queue's feeder thread pickles a batch would be
lost, and the parent would wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from accel.codec.header import Header, Raw
from accel.ops import OPS
from accel.options import Selection
from accel.recipe import Branch, Recipe, Source, Step
from accel.system import memory

Stowed = tuple[int, tuple[Step, ...]]
"""A recipe: the number of its source, and its steps with stand-ins for the tensors among their parameters."""


class Packed(NamedTuple):
    """Sources by number (each once, after what it is made of), and the recipes that refer to them.

    ``data`` has the tensors among the steps' parameters first, each on a multiple of 16 bytes, then the sources.
    """

    data: torch.Tensor
    tensors: tuple[tuple[int, torch.dtype, torch.Size], ...]
    start: int  # of the sources
    sources: tuple[tuple[int, Header | Raw, str, Selection, Stowed | None], ...]  # sizes, and fields of Source
    recipes: tuple[Stowed, ...]


def pack(recipes: tuple[Recipe, ...], *, shared: bool = False) -> Packed:
    """Gather the recipes' sources; ``shared``: into shared memory."""
    sources: dict[int, Source] = {}
    for recipe in recipes:
        _gather(recipe, sources)
    numbers = {key: number for number, key in enumerate(sources)}
    tensors = _Tensors()

    def stowed(recipe: Recipe) -> Stowed:
        return numbers[id(recipe.source)], _changed(recipe.steps, tensors.stowed)

    given = tuple(map(stowed, recipes))
    described = []
    for source in sources.values():
        origin = None if source.origin is None else stowed(source.origin)
        described.append((len(source.data), source.header, source.name, source.selection, origin))
    shape = (tensors.size + sum(size for size, *_ in described),)
    data = memory.shared(shape, torch.uint8) if shared else torch.empty(shape, dtype=torch.uint8, device="cpu")
    tensors.write(data)
    target, position = data.numpy(), tensors.size
    for source, (size, *_) in zip(sources.values(), described, strict=True):
        target[position : position + size] = np.frombuffer(source.data, np.uint8)
        position += size
    return Packed(data, tuple(tensors.places), tensors.size, tuple(described), given)


class _StandIn(NamedTuple):
    """Stands for a tensor among parameters."""

    number: int


class _Tensors:
    """The tensors among the parameters of steps, each once. (Sent by torch, each would take a file descriptor.)"""

    def __init__(self) -> None:
        self.places: list[tuple[int, torch.dtype, torch.Size]] = []
        self.size = 0
        self._numbers: dict[int, _StandIn] = {}
        self._tensors: list[torch.Tensor] = []

    def stowed(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self._numbers:
            self._numbers[id(value)] = _StandIn(len(self._tensors))
            self._tensors.append(value)
            self.places.append((self.size, value.dtype, value.shape))
            self.size += -(-value.numel() * value.itemsize // 16) * 16
        return self._numbers[id(value)]

    def write(self, data: torch.Tensor) -> None:
        for (offset, dtype, shape), tensor in zip(self.places, self._tensors, strict=True):
            _slice(data, offset, dtype, shape).copy_(tensor)


def _slice(data: torch.Tensor, offset: int, dtype: torch.dtype, shape: torch.Size) -> torch.Tensor:
    return data[offset : offset + shape.numel() * dtype.itemsize].view(dtype).view(shape)


def _changed(steps: tuple[Step, ...], change: Callable[[Any], Any]) -> tuple[Step, ...]:
    """Steps with every parameter changed of those that hold tensors."""

    def changed(value: Any) -> Any:
        return Branch(_changed(value.steps, change)) if isinstance(value, Branch) else change(value)

    return tuple([(step[0], tuple(map(changed, step[1]))) if OPS[step[0]].holds_tensors else step for step in steps])


def _gather(recipe: Recipe, sources: dict[int, Source]) -> None:
    source = recipe.source
    if id(source) not in sources:
        if source.origin is not None:
            _gather(source.origin, sources)
        sources[id(source)] = source


def unpack(packed: Packed) -> tuple[Recipe, ...]:
    """The recipes again; the sources' bytes stay where they are and are only looked at."""
    tensors = [_slice(packed.data, *place) for place in packed.tensors]
    sources: list[Source] = []
    position = packed.start

    def tensor(value: Any) -> Any:
        return tensors[value.number] if isinstance(value, _StandIn) else value

    def restored(number: int, steps: tuple[Step, ...]) -> Recipe:
        return Recipe(sources[number], _changed(steps, tensor))

    pixels: Any = packed.data.numpy()  # stubs of some versions of NumPy hide the buffer
    view = memoryview(pixels)
    for size, header, name, selection, made_of in packed.sources:
        origin = None if made_of is None else restored(*made_of)
        sources.append(Source(view[position : position + size], header, name, selection, origin=origin))
        position += size
    return tuple(restored(*recipe) for recipe in packed.recipes)
