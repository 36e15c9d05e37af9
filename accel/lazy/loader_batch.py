"""What a DataLoader gives at once, and how late tensors go from its workers to the parent.

The late tensors of one batch stay together: they cross the process border in one message, each file once, and
are submitted together, so that a list of images is as few programs as a stacked batch.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import suppress
from itertools import count, islice
from multiprocessing import parent_process
from typing import Any

import torch
from torch.utils.data import get_worker_info

from accel.backend import backend_of
from accel.lazy.base import LateTensor, is_late, unfinished
from accel.lazy.state import Late
from accel.recipe import Recipe
from accel.runtime import materialize
from accel.system import memory
from accel.workers.packing import Packed, pack, unpack

Layout = tuple[type[LateTensor], tuple[Any, ...]]
"""A class and what its ``of`` takes besides recipes."""

Place = tuple[int, int] | None
"""Of a single image among those of its batch, and how many these are, where there is one of each sample."""


class Batch:
    """The late tensors of one batch, in order.

    Attributes:
        loader: the number of the DataLoader whose worker made it; 0 for one without workers.
        submitted: whether its tensors were submitted, together.
    """

    def __init__(self, loader: int) -> None:
        self.loader = loader
        self.submitted = False
        self._members: dict[int, list[weakref.ref[Late]]] = {}  # each with what became of it, in order
        self._arrived: dict[int, tuple[Recipe, ...]] = {}

    def add(self, late: Late, number: int, indices: tuple[Any, ...] | None, place: Place = None) -> None:
        """``indices``: in the dataset, of what lies along the tensor's first axis or of a single image."""
        late.member = Member(self, number, indices, place)
        self._members[number] = [weakref.ref(late)]

    def succeed(self, member: Member, late: Late) -> None:
        """Let a tensor that was made from a member stand in its place, as long as somebody refers to it."""
        late.member = member
        self._members[member.number].append(weakref.ref(late))

    def _current(self) -> dict[int, Late]:
        """What stands in each place, if somebody still refers to it."""
        lates = {number: [ref() for ref in refs] for number, refs in sorted(self._members.items())}
        return {number: late for number, each in lates.items() for late in each if late is not None}

    def members(self) -> list[Late]:
        """Those that are still late and referred to."""
        return [late for late in self._current().values() if late.value is None]

    def sends(self, late: Late) -> bool:
        """Whether the message that it goes out in is all of the batch: it leaves the worker that made it."""
        assert late.member is not None
        return get_worker_info() is not None and self._current().get(late.member.number) is late

    def receive(self, number: int) -> tuple[Recipe, ...]:
        """The recipes of a member that has come in a message; to be asked for once."""
        return self._arrived.pop(number)

    def __reduce__(self) -> tuple[Any, ...]:
        """One message for all members, each file once. Nothing is decoded and nothing can fail: this may run in a
        queue's feeder thread."""
        lates = self._current()
        recipes = tuple(recipe for late in lates.values() for recipe in late.recipes)
        lengths = {number: len(late.recipes) for number, late in lates.items()}
        return _open, (self.loader, pack(recipes, shared=get_worker_info() is not None), lengths)


class Member:
    """A late tensor's place in its batch."""

    __slots__ = ("batch", "indices", "number", "place")

    def __init__(self, batch: Batch, number: int, indices: tuple[Any, ...] | None, place: Place) -> None:
        self.batch = batch
        self.number = number
        self.indices = indices
        self.place = place

    def where(self, position: int | None) -> str:
        """Where an image of the tensor comes from, so far as the tensor itself cannot say it, for a message."""
        if position is None:
            return ""
        where = ""
        if self.place is not None and self.place[1] > 1:
            where = f" (image {self.place[0]} of a batch of {self.place[1]})"
        return where if self.indices is None else f"{where} (dataset index {self.indices[position]})"


def gather(values: Sequence[Any], loader: int, indices: Any) -> None:
    """Make the late tensors among these values a batch.

    Args:
        loader: see ``Batch``. indices: of the samples in the dataset, where they are known.
    """
    tensors: list[LateTensor] = [value for value in values if is_late(value)]
    if not tensors:
        return
    batch = Batch(loader)
    samples = tuple(indices) if isinstance(indices, list) else ()
    known = () if None in samples else samples  # a stream has none
    one_each = sum(not tensor.late.lead for tensor in tensors) == len(samples)
    singles = count()
    for number, tensor in enumerate(tensors):
        late, place = tensor.late, None
        own = known if late.lead and late.lead[0] == len(known) else None
        if not late.lead and one_each:
            place = next(singles), len(samples)
            own = known[place[0] : place[0] + 1] or None
        batch.add(late, number, own, place)


def send(tensor: LateTensor) -> Any:
    """How a late tensor goes to another process: encoded bytes and recipes.

    What a process that was started for the work sends (a pool's, torchdata's) is computed there by a host backend.
    Nothing can fail, for this may run in a queue's feeder thread (see ``workers.packing``): where it does, the receiver
    will say so.
    """
    late = unfinished(tensor)
    if (
        late is not None
        and parent_process() is not None
        and not backend_of(materialize.selection_of(late.recipes)).devices
    ):
        with suppress(Exception):
            LateTensor.evaluate(tensor, memory.shared)
    late = tensor.__dict__.get("late")
    if late is None or late.value is not None:  # somebody has its values
        return _receive_value, (tensor if late is None else late.value,)
    layout = (type(tensor), (late.lead, late.shape, late.dtype, late.interleaved, late.after, late.made))
    if late.member is None or not late.member.batch.sends(late):
        return _receive, (pack(late.recipes, shared=get_worker_info() is not None), layout)
    member = late.member
    return _receive_member, (member.batch, member.number, member.indices, member.place, layout)


def _open(loader: int, packed: Packed, lengths: dict[int, int]) -> Batch:
    batch, recipes = Batch(loader), iter(unpack(packed))
    batch._arrived = {number: tuple(islice(recipes, length)) for number, length in lengths.items()}
    return batch


def _receive_member(
    batch: Batch, number: int, indices: tuple[Any, ...] | None, place: Place, layout: Layout
) -> LateTensor:
    cls, rest = layout
    tensor = cls.of(batch.receive(number), *rest)
    batch.add(tensor.late, number, indices, place)
    return tensor


def _receive(packed: Packed, layout: Layout) -> LateTensor:
    cls, rest = layout
    return cls.of(unpack(packed), *rest)


def _receive_value(value: torch.Tensor) -> torch.Tensor:
    return value
