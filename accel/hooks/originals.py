"""Whether names of torch and torchvision still stand for their own functions, which accel's shortcuts assume."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from accel.errors import BackendUnavailable
from accel.hooks.compiled.stock import is_stock


class Originals:
    """What stood under some names when this was made.

    Args:
        named: modules or classes, and names of each.
    """

    __slots__ = ("_named", "_stock", "_then")

    def __init__(self, *named: tuple[Any, Sequence[str]]) -> None:
        self._named = [(attrgetter(*names, names[0]), owner) for owner, names in named if names]
        self._then = self._now()
        self._stock = self._then is not None and all(is_stock(each) for found in self._then for each in found)

    def hold(self) -> bool:
        """Whether they stand for the same, and that is torch's or torchvision's own."""
        return self._stock and self._now() == self._then

    def _now(self) -> list[tuple[Any, ...]] | None:
        """What stands there; None where a name is gone."""
        try:
            return [get(owner) for get, owner in self._named]
        except (AttributeError, BackendUnavailable):  # the latter: of a module that is gone
            return None
