"""Batches of a DataLoader, and sending lazy tensors from its workers to the parent.

The lazy tensors of one batch stay together: they are sent in one message, each file once, and submitted together, so
that a list of images takes as few programs as a stacked batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from multiprocessing import parent_process
from typing import Any

import torch

from accel.backend import backend_of
from accel.lazy.batch import Batch, Member
from accel.lazy.state import peek
from accel.lazy.tensor_base import LazyTensorBase, is_lazy, pending_state
from accel.processes.packing import PackedRecipes, pack, unpack
from accel.processes.sending import raised_by_receiver
from accel.processes.sent_files import SentFiles
from accel.recipes.rows import Rows
from accel.system import memory


def gather(values: Sequence[Any], loader: int, indices: Any) -> None:
    """Make a batch of the lazy tensors among these values.

    Args:
        loader: see ``Batch``. indices: a list of the samples' dataset indices; other values: they are not known.
    """
    tensors: list[LazyTensorBase] = [value for value in values if is_lazy(value)]
    if not tensors:
        return
    batch = Batch(loader)
    samples = tuple(indices) if isinstance(indices, list) else ()
    known = () if None in samples else samples  # an iterable dataset has none
    one_each = sum(not tensor.lazy.lead for tensor in tensors) == len(samples)
    singles = count()
    for number, tensor in enumerate(tensors):
        lazy, place = tensor.lazy, None
        own = known if lazy.lead and lazy.lead[0] == len(known) else None
        if not lazy.lead and one_each:
            place = next(singles), len(samples)
            own = known[place[0] : place[0] + 1] or None
        if lazy.together:
            batch.together |= {number}
        batch.add(lazy, Member(batch, number, own, place))


@raised_by_receiver
def send(tensor: LazyTensorBase) -> Any:
    """Reduce a lazy tensor for another process: to encoded bytes and recipes.

    In a child process (a pool's, torchdata's), a host backend computes the values first. Where they cannot be, the
    receiver computes them, and raises the error.
    """
    lazy = pending_state(tensor)
    if lazy is not None and parent_process() is not None and not backend_of(lazy.selection).devices:
        with suppress(Exception):
            LazyTensorBase.materialize(tensor, memory.shared)
    lazy = peek(tensor)
    if lazy is None or lazy.value is not None:  # its values are computed
        return _receive_value, (tensor if lazy is None else lazy.value,)
    layout = type(tensor), (lazy.lead, lazy.shape, lazy.dtype, lazy.layout, lazy.after, lazy.made)
    if lazy.member is None or not lazy.member.batch.sends(lazy):
        return _receive, (*layout, pack(lazy.recipes, lazy.made[2]))
    return _receive, (*layout, None, *lazy.member)


def _receive(
    cls: type[LazyTensorBase], rest: tuple[Any, ...], packed: PackedRecipes | SentFiles | Rows | None, *member: Any
) -> LazyTensorBase:
    if packed is not None:
        return cls.of(unpack(packed), *rest)
    place = Member(*member)
    tensor = cls.of(place.batch.arrived.pop(place.number), *rest)
    place.batch.add(tensor.lazy, place)
    return tensor


def _receive_value(value: torch.Tensor) -> torch.Tensor:
    return value
