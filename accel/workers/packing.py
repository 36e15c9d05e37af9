"""Recipes in and out of a message: the files and pixels of a batch as one uint8 tensor, the rest as plain data.

In a DataLoader worker that tensor lies in shared memory, so only a handle crosses the process border. Nothing
here decodes or can fail on bad pixels: an exception while a queue's feeder thread pickles a batch would be
lost, and the parent would wait for ever.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from accel.sources.header import Header, Raw
from accel.sources.recipe import Recipe, Source
from accel.switch import Selection
from accel.system import memory


class Packed(NamedTuple):
    """Sources by number (each once, after what it is made of), and the recipes that refer to them."""

    data: torch.Tensor
    sizes: tuple[int, ...]
    headers: tuple[Header | Raw, ...]
    names: tuple[str, ...]
    selections: tuple[Selection, ...]
    origins: tuple[tuple[Any, ...] | None, ...]
    recipes: tuple[tuple[Any, ...], ...]


def pack(recipes: tuple[Recipe, ...], *, shared: bool = False) -> Packed:
    """Gather the recipes' sources; ``shared``: into shared memory."""
    sources: dict[int, Source] = {}
    for recipe in recipes:
        _gather(recipe, sources)
    numbers = {key: number for number, key in enumerate(sources)}
    sizes = tuple(len(source.data) for source in sources.values())
    shape = (sum(sizes),)
    data = memory.shared(shape, torch.uint8) if shared else torch.empty(shape, dtype=torch.uint8, device="cpu")
    target, position = data.numpy(), 0
    for source, size in zip(sources.values(), sizes, strict=True):
        target[position : position + size] = np.frombuffer(source.data, np.uint8)
        position += size
    return Packed(
        data,
        sizes,
        tuple(source.header for source in sources.values()),
        tuple(source.name for source in sources.values()),
        tuple(source.selection for source in sources.values()),
        tuple(source.origin and _numbered(source.origin, numbers) for source in sources.values()),
        tuple(_numbered(recipe, numbers) for recipe in recipes),
    )


def _gather(recipe: Recipe, sources: dict[int, Source]) -> None:
    source = recipe.source
    if id(source) not in sources:
        if source.origin is not None:
            _gather(source.origin, sources)
        sources[id(source)] = source


def _numbered(recipe: Recipe, numbers: dict[int, int]) -> tuple[Any, ...]:
    return (numbers[id(recipe.source)], *recipe[1:])


def unpack(packed: Packed) -> tuple[Recipe, ...]:
    """The recipes again; the sources' bytes stay where they are and are only looked at."""
    sources: list[Source] = []
    position = 0
    view = memoryview(packed.data.numpy())  # type: ignore[arg-type]  # numpy's stubs hide the buffer
    for size, header, name, selection, made_of in zip(
        packed.sizes, packed.headers, packed.names, packed.selections, packed.origins, strict=True
    ):
        origin = None if made_of is None else Recipe(sources[made_of[0]], *made_of[1:])
        sources.append(Source(view[position : position + size], header, name, selection, origin=origin))
        position += size
    return tuple(Recipe(sources[number], *steps) for number, *steps in packed.recipes)
