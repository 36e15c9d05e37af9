"""Packing recipes for a message: files, pixels and tensors of a batch as one uint8 tensor, the rest as plain data.

In a DataLoader worker that tensor lies in a slot of reused shared memory (``slot_pool``), so only its place is sent.
Nothing here decodes or can fail on bad pixels: the receiver raises that, where the user can catch it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from multiprocessing.context import get_spawning_popen
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import get_worker_info

from accel.codec.header import Header, Raw
from accel.ops import OPS
from accel.processes import sending, sent_files, slot_pool
from accel.processes.sent_files import SentFiles
from accel.recipes.options import Selection
from accel.recipes.recipe import Branch, Recipe, Source, Step
from accel.recipes.rows import Numbers, Rows, Structure
from accel.runtime.memo import cached
from accel.system.memory import Key

Stowed = tuple[int, tuple[Step, ...]]
"""A packed recipe: the number of its source, and its steps with stand-ins for tensors among their parameters."""


class Packed(NamedTuple):
    """Sources by number (each once, after those that it is made of), and the recipes that refer to them.

    ``data`` has first the tensors among the steps' parameters, each at a multiple of 16 bytes, then the sources.
    """

    data: torch.Tensor | npt.NDArray[np.uint8]
    tensors: dict[int, tuple[int, torch.dtype, torch.Size]]
    start: int  # the offset of the sources
    sources: dict[
        int, tuple[int, Header | Raw, str, Selection, Stowed | None, Key | None, Any, str]
    ]  # the size, and fields of Source; the path only of one that was not read
    recipes: tuple[Stowed, ...]
    rows: tuple[tuple[int, ...], Structure, Numbers] | None = None  # sources, structure, numbers: in place of recipes


def pack(recipes: Sequence[Recipe], interleaved: bool = False) -> Packed | SentFiles:
    """Pack recipes, with results in this memory order, and their sources; in a DataLoader worker into shared memory,
    unless it packs plainly."""
    plain = sending.plainly()
    in_worker = get_worker_info() is not None and not plain
    if in_worker and get_spawning_popen() is None:
        sent = sent_files.pack(recipes, interleaved)
        if sent is not None:
            return sent
    sources: dict[int, Source] = {}
    rows = None
    if plain:
        recipes = tuple(recipes)
    if isinstance(recipes, Rows) and not any(OPS[form.name].holds_tensors for form in recipes.structure.forms):
        kept = tuple(recipes.sources)
        rows, recipes = (tuple(map(id, kept)), recipes.structure, recipes.numbers), ()
        for source in kept:
            _gather(source, sources)
    for recipe in recipes:
        _gather(recipe.source, sources)
    tensors: dict[int, torch.Tensor] = {}  # each once. (Sent by torch, each would take a file descriptor.)

    def stand_in(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        tensors[id(value)] = value
        return _StandIn(id(value))

    def stowed(recipe: Recipe) -> Stowed:
        return id(recipe.source), _changed(recipe.steps, stand_in)

    given = tuple(map(stowed, recipes))
    described = {}
    for number, source in sources.items():
        origin = None if source.origin is None else stowed(source.origin)
        size, path = (len(source.data), None) if source.is_read else (0, source.path)
        described[number] = size, source.header, source.name, source.selection, origin, source.key, path, source.way
    places, start = {}, 0
    for number, tensor in tensors.items():
        places[number] = start, tensor.dtype, tensor.shape
        start += -(-tensor.numel() * tensor.itemsize // 16) * 16
    shape = (start + sum(size for size, *_ in described.values()),)
    data = slot_pool.shared(shape, torch.uint8) if in_worker else torch.empty(shape, dtype=torch.uint8, device="cpu")
    for number, tensor in tensors.items():
        _slice(data, *places[number]).copy_(tensor)
    target, position = data.numpy(), start
    for source in sources.values():
        if not source.is_read:
            continue
        content = np.frombuffer(source.data, np.uint8)
        target[position : position + len(content)] = content
        position += len(content)
    if plain or get_spawning_popen() is not None:  # by value: a handle would be closed before the new process runs
        return Packed(target, places, start, described, given, rows)
    return Packed(data, places, start, described, given, rows)


class _StandIn(NamedTuple):
    """A stand-in for a tensor among parameters."""

    number: int


def _slice(data: torch.Tensor, offset: int, dtype: torch.dtype, shape: torch.Size) -> torch.Tensor:
    return data[offset : offset + shape.numel() * dtype.itemsize].view(dtype).view(shape)


def _changed(steps: tuple[Step, ...], change: Callable[[Any], Any]) -> tuple[Step, ...]:
    """Steps with ``change`` applied to every parameter of those ops that hold tensors."""

    def changed(value: Any) -> Any:
        return Branch(_changed(value.steps, change)) if isinstance(value, Branch) else change(value)

    return tuple([(step[0], tuple(map(changed, step[1]))) if OPS[step[0]].holds_tensors else step for step in steps])


def _gather(source: Source, sources: dict[int, Source]) -> None:
    if id(source) not in sources:
        if source.origin is not None:
            _gather(source.origin.source, sources)
        sources[id(source)] = source


def unpack(packed: Packed | SentFiles | Rows) -> Sequence[Recipe]:
    """Unpack recipes; their sources are views of the packed data."""
    if not isinstance(packed, Packed):
        return sent_files.unpack(packed)
    data = torch.as_tensor(packed.data)
    tensors = {number: _slice(data, *place) for number, place in packed.tensors.items()}
    sources: dict[int, Source] = {}
    position = packed.start

    def tensor(value: Any) -> Any:
        return tensors[value.number] if isinstance(value, _StandIn) else value

    def restored(number: int, steps: tuple[Step, ...]) -> Recipe:
        return Recipe(sources[number], _changed(steps, tensor))

    pixels: Any = data.numpy()  # stubs of some versions of NumPy hide the buffer
    view = memoryview(pixels)
    for number, (size, header, name, selection, made_of, key, path, way) in packed.sources.items():
        origin = None if made_of is None else restored(*made_of)
        content, entries = (
            (None, cached.known(key, selection, header)) if path else (view[position : position + size], None)
        )
        sources[number] = source = Source(content, header, name, selection, None, origin, key, path, entries)
        source.way = way
        position += size
    if packed.rows is not None:
        own, structure, numbers = packed.rows
        return Rows([sources[number] for number in own], structure, numbers)
    return tuple(restored(*recipe) for recipe in packed.recipes)
