"""Images of one batch that nobody stacked, as a list of images of different sizes: computed all at once.

A collate function that copies images one by one, or a training loop that takes them from a list, asks for one
tensor after another. The first that is asked for has the others of its group computed with it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence

import torch

from accel.recipe import Recipe
from accel.runtime import compute
from accel.system import fork
from accel.system.memory import Allocate


class Images:
    """Images that come out alike, and those that they are computed with.

    Attributes:
        recipes: one of each. interleaved: how they lie in memory.
        group: whom they are computed with. ready: their pixels, once others have had them computed.
    """

    __slots__ = ("__weakref__", "group", "interleaved", "ready", "recipes")

    recipes: tuple[Recipe, ...]
    interleaved: bool
    group: Group | None
    ready: torch.Tensor | None

    def compute_images(self, allocate: Allocate) -> torch.Tensor:
        """Compute these [images, channels, height, width], and those that they are grouped with."""
        while (group := self.group) is not None:
            group.compute(self, allocate)
        if self.ready is not None:
            ready, self.ready = self.ready, None
            return ready
        return compute.tensors(self.recipes, interleaved=self.interleaved, allocate=allocate)


class Group:
    """Images that are computed together; holds weak references to them."""

    __slots__ = ("_lock", "_members", "_passed")

    def __init__(self, members: Iterable[Images]) -> None:
        self._lock = fork.Lock()
        self._members = [weakref.ref(member) for member in members]
        self._passed: weakref.WeakSet[Images] = weakref.WeakSet()

    def join(self, member: Images, origin: Images) -> None:
        """Add what was made from a member, which is no longer expected to be used itself."""
        with self._lock:
            self._members.append(weakref.ref(member))
            self._passed.add(origin)
        member.group = self

    def compute(self, wanted: Images, allocate: Allocate) -> None:
        """Make one member ready, and with it all that are still expected to be used."""
        with self._lock:
            if wanted.ready is None and wanted.group is self:
                others = [other for ref in self._members if (other := ref()) is not None and other.group is self]
                expected = [other for other in others if other is not wanted and other not in self._passed]
                members = [wanted, *expected]
                results = compute.several([(member.recipes, member.interleaved) for member in members], allocate)
                for member, result in zip(members, results, strict=True):
                    member.group = None
                    member.ready = None if isinstance(result, Exception) else result
                if isinstance(results[0], Exception):
                    raise results[0]


def group(members: Sequence[Images]) -> None:
    """Have these computed together, from the first use of one of them on."""
    if len(members) > 1:
        shared = Group(members)
        for member in members:
            member.group = shared
