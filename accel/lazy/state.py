"""The state of a lazy tensor, from recipes to values, and the batch of a DataLoader that it belongs to."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from math import prod
from typing import Any, NamedTuple

import torch
from torch.utils.data import get_worker_info

from accel.errors import DecodeError
from accel.lazy.group import Images
from accel.lazy.modes import suspended
from accel.recipe import Recipe, Step
from accel.runtime import prefetch, torch_ops
from accel.runtime.prefetch import Part
from accel.system import fork
from accel.system.memory import Allocate
from accel.workers.packing import Packed, pack, unpack

_making_a_lock = fork.Lock()

ImageShape = tuple[int, int, int]
"""(channels, height, width)"""


Place = tuple[int, int] | None
"""The number of a single image in its batch, and how many these are, where there is one of each sample."""


class LazyState(Images):
    """The state of a lazy tensor: what it is made of, and how far that is computed.

    Attributes:
        recipes: the images, in order. lead: the shape in front of ``shape``; () for a single image.
        shape: of one image. dtype: of the values.
        interleaved: the memory of an image is ordered [height, width, channels].
        after: steps on the batch as a whole, on what the recipes give.
        made: the shape and dtype of what the recipes give, which ``after`` may change.
        view: torchvision's tensor is a view of part of the columns of a larger one.
        value: the values, once computed, where the tensor object itself could not become them.
        group, ready: see ``accel.lazy.group.Images``.
        whole: of a part of a batch, that batch, what it is made of, and the part's index. aliased: whether it is such
            a part, or has some: what changes its values in place does so in the others. shared: the values, once
            computed, for its parts.
        member: its place in the batch that a DataLoader gave. stacked: whether a batch was made of it.
        part: what it has of a submission. since: casts and orders recorded since then, ahead of ``after``.
        pending: a mark, as long as it has no values; see ``_Pending``.
    """

    __slots__ = (
        "_lock",
        "after",
        "aliased",
        "dtype",
        "lead",
        "made",
        "member",
        "part",
        "pending",
        "shape",
        "shared",
        "since",
        "stacked",
        "value",
        "view",
        "whole",
    )

    def __init__(
        self,
        recipes: tuple[Recipe, ...],
        lead: tuple[int, ...],
        shape: ImageShape,
        dtype: torch.dtype,
        interleaved: bool,
        after: tuple[Step, ...] = (),
        made: tuple[ImageShape, torch.dtype] | None = None,
    ) -> None:
        self.recipes = recipes
        self.lead = lead
        self.shape = shape
        self.dtype = dtype
        self.interleaved = interleaved
        self.after = after
        self.made = made or (shape, dtype)
        self.view = False
        self.stacked = False
        self.whole: tuple[torch.Tensor, LazyState, Any] | None = None
        self.aliased = False
        self.shared: torch.Tensor | None = None
        self._lock: fork.Lock | None = None
        self.value: torch.Tensor | None = None
        self.group = None
        self.ready = None
        self.member: Member | None = None
        self.part: Part | None = None
        self.since: tuple[Step, ...] = ()
        self.pending: object = _PENDING

    def succeeds(self, other: LazyState, part: Part | None, since: tuple[Step, ...]) -> None:
        """Take the place of another one that it was made from, which is not expected to be used any more."""
        self.part, self.since = part, since
        if other.member is not None:
            other.member.batch.succeed(other.member, self)

    @property
    def lock(self) -> fork.Lock:
        """The lock of whoever computes it, made then: most are never computed, but become part of another."""
        if self._lock is None:
            with _making_a_lock:
                self._lock = self._lock or fork.Lock()
        return self._lock

    def compute(self, allocate: Allocate) -> torch.Tensor:
        """Compute the values on the host: of its submission if there is one, else now.

        A batch of an accelerator backend is computed on its device, where that is known.
        """
        images = self.submitted()
        if images is not None:
            return images.to("cpu")
        with self.locating_errors():
            if self.lead:
                images = prefetch.compute_on_device(self.recipes, self.interleaved, self.loader)
            if images is None:
                images = self.compute_images(allocate)
            return self.shaped(images)

    def submitted(self) -> torch.Tensor | None:
        """Take the values from where they were submitted to; None if there are none, or somebody took them."""
        part, self.part = self.part, None
        if part is None:
            return None
        with self.locating_errors():
            images = part.take(len(self.recipes))
            if images is None:
                return None
            return self.shaped(torch_ops.on_batch(images, self.since) if self.since else images)

    def shaped(self, images: torch.Tensor) -> torch.Tensor:
        """Images one after another, in this tensor's shape, after the steps on the whole."""
        batch = images if len(self.lead) == 1 else images.view(*self.lead, *self.made[0])
        return torch_ops.on_batch(batch, self.after) if self.after else batch

    @property
    def loader(self) -> int:
        """The number of the DataLoader whose worker it comes from, or 0."""
        return 0 if self.member is None else self.member.batch.loader

    @contextmanager
    def locating_errors(self) -> Iterator[None]:
        """Say in a DecodeError its place along this tensor's first axis and, where known, in the dataset."""
        try:
            with suspended():
                yield
        except DecodeError as error:
            if error.position is not None and self.lead:
                error.position //= prod(self.lead[1:])
                error.batch = self.lead[0]
            where = "" if self.member is None else self.member.where(error.position)
            if not where:
                raise
            raise type(error)(f"{error}{where}") from error


class Batch:
    """The lazy tensors of one batch, in order.

    Attributes:
        loader: the number of the DataLoader whose worker made it; 0 for one without workers.
        submitted: whether its tensors were submitted.
    """

    def __init__(self, loader: int) -> None:
        self.loader = loader
        self.submitted = False
        self._members: dict[int, list[weakref.ref[LazyState]]] = {}  # each with what became of it, in order
        self._arrived: dict[int, tuple[Recipe, ...]] = {}

    def add(self, lazy: LazyState, number: int, indices: tuple[Any, ...] | None, place: Place = None) -> None:
        """``indices``: in the dataset, of what lies along the tensor's first axis or of a single image."""
        lazy.member = Member(self, number, indices, place)
        self._members[number] = [weakref.ref(lazy)]

    def succeed(self, member: Member, lazy: LazyState) -> None:
        """Let a tensor that was made from a member stand in its place, as long as somebody refers to it."""
        lazy.member = member
        self._members[member.number].append(weakref.ref(lazy))

    def _current(self) -> dict[int, LazyState]:
        """The state in each place, if somebody still refers to it."""
        states = {number: [ref() for ref in refs] for number, refs in sorted(self._members.items())}
        return {number: lazy for number, each in states.items() for lazy in each if lazy is not None}

    def members(self) -> list[LazyState]:
        """The members without values that somebody refers to."""
        return [lazy for lazy in self._current().values() if lazy.value is None]

    def sends(self, lazy: LazyState) -> bool:
        """Whether to send the whole batch when this member is pickled: it leaves the worker that made it."""
        assert lazy.member is not None
        return get_worker_info() is not None and self._current().get(lazy.member.number) is lazy

    def receive(self, number: int) -> tuple[Recipe, ...]:
        """Take the recipes of a member that has come in a message."""
        return self._arrived.pop(number)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle all members in one message, each file once. Nothing is decoded and nothing can fail: this may run in a
        queue's feeder thread."""
        states = self._current()
        recipes = tuple(recipe for lazy in states.values() for recipe in lazy.recipes)
        lengths = {number: len(lazy.recipes) for number, lazy in states.items()}
        return _open, (self.loader, pack(recipes, shared=get_worker_info() is not None), lengths)


class Member(NamedTuple):
    """A lazy tensor's place in its batch."""

    batch: Batch
    number: int
    indices: tuple[Any, ...] | None
    place: Place

    def where(self, position: int | None) -> str:
        """Say for a message where an image of the tensor comes from, so far as the tensor itself cannot."""
        if position is None:
            return ""
        where = ""
        if self.place is not None and self.place[1] > 1:
            where = f" (image {self.place[0]} of a batch of {self.place[1]})"
        return where if self.indices is None else f"{where} (dataset index {self.indices[position]})"


def _open(loader: int, packed: Packed, lengths: dict[int, int]) -> Batch:
    batch, recipes = Batch(loader), iter(unpack(packed))
    batch._arrived = {number: tuple(islice(recipes, length)) for number, length in lengths.items()}
    return batch


class _Pending:
    """Every state of this process that has no values: where there is none nobody need look for one."""

    def __init__(self) -> None:
        self._others = 0
        self._others = self.count()

    def count(self) -> int:
        """Count them: as many as refer to the mark, besides what always does."""
        return sys.getrefcount(_PENDING) - self._others


_PENDING = object()
pending = _Pending()
