"""Recipes of a batch that a worker has finished, of which nothing is made unless somebody looks at them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from accel.recipes.options import Selection
from accel.recipes.recipe import Recipe
from accel.recipes.rows import Rows, Steps, then
from accel.recipes.sources import Sources
from accel.system.fork import cached_property
from accel.system.page_locks import Block


class Ahead(NamedTuple):
    """The part of a batch's work that a worker has done ahead of the device (``AcceleratorBackend.ahead``).

    Valid for exactly the recipes that arrived, with ``casts`` after their steps: those that the worker expected.

    Attributes:
        shape: (images, channels, height, width) of the result. dtype: its dtype. interleaved: its memory order.
        slot: the slot of shared memory that everything was sent in, uint8 [bytes].
        first: the index of the 64-bit word of the slot where the backend's parts are listed: for each its offset (a
            multiple of 64) and its size in bytes.
        files: the offset of the files in the slot. selection: the backend that runs them.
        way: how the images were recorded (``Source.way``).
        memory: the slot as a block whose pages a device may have locked; None if it cannot be locked.
    """

    shape: tuple[int, int, int, int]
    dtype: torch.dtype
    interleaved: bool
    casts: Steps
    slot: npt.NDArray[np.uint8]
    first: int
    files: int
    selection: Selection
    way: str
    memory: Block | None = None

    def part(self, number: int) -> npt.NDArray[np.uint8]:
        """The backend's part with this number, uint8 [bytes]."""
        where = 8 * (self.first + 2 * number)
        start, size = self.slot[where : where + 16].view(np.int64).tolist()
        return self.slot[start : start + size]


class Assorted(Sequence[Recipe]):
    """Recipes of any steps, each made on access; ``steps``: those of every image."""

    def __init__(self, sources: Sources, steps: Sequence[Steps]) -> None:
        self.sources, self.steps = sources, steps

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, place: Any) -> Any:
        found = self.sources[place], self.steps[place]
        return tuple(map(Recipe, *found)) if isinstance(place, slice) else Recipe(*found)


class Arrived(Sequence[Recipe]):
    """Recipes that are computed ahead.

    Attributes:
        ahead: what a worker has computed. since: steps recorded since.
    """

    def __init__(self, ahead: Ahead, rest: Callable[[], Rows | Assorted], since: Steps = ()) -> None:
        """``rest``: returns the recipes as they arrived."""
        self.ahead, self._rest, self.since = ahead, rest, since

    @cached_property
    def arrived(self) -> Rows | Assorted:
        """The recipes as they arrived."""
        return self._rest()

    @property
    def recipes(self) -> Sequence[Recipe]:
        """The recipes, with the steps recorded since."""
        return then(self.arrived, self.since) if self.since else self.arrived

    @property
    def sources(self) -> Any:
        """The images' sources."""
        return self.arrived.sources

    @property
    def selection(self) -> Selection:
        """The selection of the images."""
        return self.ahead.selection

    def then(self, *steps: Any) -> Arrived:
        """The recipes with more steps, the same for all of them."""
        return self.with_only((*self.since, *steps))

    def with_only(self, steps: Steps) -> Arrived:
        """The recipes as they arrived, with these steps."""
        return Arrived(self.ahead, lambda: self.arrived, steps)

    def __len__(self) -> int:
        return self.ahead.shape[0]

    def __getitem__(self, place: Any) -> Any:
        return self.recipes[place]

    def __reduce__(self) -> Any:
        return _same, (self.recipes if isinstance(self.recipes, Rows) else tuple(self.recipes),)


def _same(recipes: Sequence[Recipe]) -> Sequence[Recipe]:
    return recipes
