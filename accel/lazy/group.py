"""Late tensors of one batch that nobody stacked, as a list of images of different sizes: computed all at once.

A collate function that copies images one by one, or a training loop that takes them from a list, asks for one
tensor after another. The first that is asked for has the others of its batch computed with it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Protocol

import torch

from accel.recipe import Recipe
from accel.runtime import materialize
from accel.system import fork
from accel.system.memory import Allocate


class Member(Protocol):
    """What can be computed together with others.

    Attributes:
        recipes: its images. interleaved: how they lie in memory.
        group: what it is computed with. ready: its images, once others have had them computed.
    """

    recipes: tuple[Recipe, ...]
    interleaved: bool
    group: Group | None
    ready: torch.Tensor | None


class Group:
    """Some that are computed together; it keeps none of them alive."""

    __slots__ = ("_lock", "_members", "_passed")

    def __init__(self, members: Iterable[Member]) -> None:
        self._lock = fork.Lock()
        self._members = [weakref.ref(member) for member in members]
        self._passed: weakref.WeakSet[Member] = weakref.WeakSet()

    def join(self, member: Member, origin: Member) -> None:
        """Add one that was made from another one of these, which is no longer expected to be used itself."""
        with self._lock:
            self._members.append(weakref.ref(member))
            self._passed.add(origin)
        member.group = self

    def compute(self, wanted: Member, allocate: Allocate) -> torch.Tensor:
        with self._lock:
            if wanted.ready is None and wanted.group is self:
                others = [other for ref in self._members if (other := ref()) is not None and other.group is self]
                expected = [other for other in others if other is not wanted and other not in self._passed]
                together = [wanted, *expected]
                results = materialize.several([(member.recipes, member.interleaved) for member in together], allocate)
                for member, result in zip(together, results, strict=True):
                    member.group = None
                    member.ready = None if isinstance(result, Exception) else result
                if isinstance(results[0], Exception):
                    raise results[0]
        return compute(wanted, allocate)


def compute(wanted: Member, allocate: Allocate) -> torch.Tensor:
    """The images [images, channels, height, width] of one; those it is grouped with are computed as well.

    Raises:
        DecodeError: one of its own images cannot be decoded.
    """
    if wanted.group is not None:
        return wanted.group.compute(wanted, allocate)
    if wanted.ready is not None:
        ready, wanted.ready = wanted.ready, None
        return ready
    return materialize.tensors(wanted.recipes, interleaved=wanted.interleaved, allocate=allocate)


def group(members: Sequence[Member]) -> None:
    """Have these computed together, from the first use of one of them on."""
    if len(members) > 1:
        company = Group(members)
        for member in members:
            member.group = company
