"""Packing recipes for a message: a pickle whose files, pixels and tensors lie beside it, in one uint8 tensor.

In a DataLoader worker that tensor lies in a slot of reused shared memory (``slot_pool``), so only its place is sent.
Nothing here decodes or can fail on bad pixels: the receiver raises that, where the user can catch it.
"""

from __future__ import annotations

import copyreg
import io
import itertools
import pickle
from collections.abc import Sequence
from multiprocessing.context import get_spawning_popen
from pickle import PickleBuffer
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import get_worker_info

from accel.processes import sending, sent_files, slot_pool
from accel.processes.sent_files import SentFiles
from accel.recipes.options import Selection
from accel.recipes.recipe import Recipe, Source
from accel.recipes.rows import Rows
from accel.runtime.memo import cached


class PackedRecipes(NamedTuple):
    """Recipes as a pickle, ``message``, and the content of its out-of-band buffers, one behind another in ``data``,
    uint8 [bytes], each at a multiple of 16 bytes; ``sizes``: their bytes."""

    data: torch.Tensor | npt.NDArray[np.uint8]
    message: bytes
    sizes: list[int]


def pack(recipes: Sequence[Recipe], interleaved: bool = False, whole: bool = True) -> PackedRecipes | SentFiles:
    """Pack recipes, with results in this memory order, and their sources, each once; in a DataLoader worker into shared
    memory, unless it packs plainly. ``whole``: whether they are those of one tensor."""
    plain = sending.plainly()
    in_worker = get_worker_info() is not None and not plain
    if in_worker and get_spawning_popen() is None:
        sent = sent_files.pack(recipes, interleaved, whole)
        if sent is not None:
            return sent
    if isinstance(recipes, Rows) and not plain and not sent_files.holds_tensors(recipes.structure):
        recipes = Rows(tuple(recipes.sources), recipes.structure, recipes.numbers)
    else:
        recipes = tuple(recipes)
    stream, buffers = io.BytesIO(), list[PickleBuffer]()
    pickler = pickle.Pickler(stream, 5, buffer_callback=buffers.append)
    pickler.dispatch_table = {**copyreg.dispatch_table, Source: _of_source, torch.Tensor: _of_tensor}
    pickler.dump(recipes)
    sizes = [each.raw().nbytes for each in buffers]
    shape = (sum(map(_whole, sizes)),)
    data = slot_pool.empty(shape, torch.uint8) if in_worker else torch.empty(shape, dtype=torch.uint8, device="cpu")
    for part, each in zip(_parts(data, sizes), buffers, strict=True):
        part[:] = each.raw()
    # by value for a process that is being started: a handle would be closed before it runs
    by_value = plain or get_spawning_popen() is not None
    return PackedRecipes(data.numpy() if by_value else data, stream.getvalue(), sizes)


def unpack(packed: PackedRecipes | SentFiles | Sequence[Recipe]) -> Sequence[Recipe]:
    """Unpack recipes; their sources, and tensors among their steps' parameters, are views of the packed data."""
    if not isinstance(packed, PackedRecipes):
        return sent_files.unpack(packed)
    data = torch.as_tensor(packed.data)
    return pickle.loads(packed.message, buffers=_parts(data, packed.sizes))  # type: ignore[no-any-return]


def _parts(data: torch.Tensor, sizes: Sequence[int]) -> list[memoryview]:
    """The parts of the data, one for each buffer."""
    memory: Any = data.numpy()  # stubs of some versions of NumPy hide the buffer
    begins = itertools.accumulate(map(_whole, sizes), initial=0)
    return [memoryview(memory)[begin : begin + size] for begin, size in zip(begins, sizes, strict=False)]


def _whole(size: int) -> int:
    return -(-size // 16) * 16


def _of_source(source: Source) -> tuple[Any, ...]:
    content = PickleBuffer(source.data) if source.is_read else None
    rest = source.header, source.name, source.selection, source.origin, source.key, source.path, source.way
    return _source, (content, *rest)


def _source(
    content: Any, header: Any, name: str, selection: Selection, origin: Any, key: Any, path: Any, way: str
) -> Source:
    cache_entries = cached.known(key, selection, header) if path else None
    source = Source(content, header, name, selection, None, origin, key, path, cache_entries)
    source.way = way
    return source


def _of_tensor(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Reduce a tensor among parameters. (Sent by torch, each would take a file descriptor.)"""
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu").copy_(tensor.detach())
    content: Any = copy.view(-1).view(torch.uint8).numpy()
    return _tensor, (PickleBuffer(content), tensor.dtype, tensor.shape)


def _tensor(content: Any, dtype: torch.dtype, shape: torch.Size) -> torch.Tensor:
    return torch.frombuffer(content, dtype=dtype).view(shape) if shape.numel() else torch.empty(shape, dtype=dtype)
