"""Checks that names of torch and torchvision still have their own functions, which accel's shortcuts assume."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from accel.errors import BackendUnavailable
from accel.hooks.compiled.stock import is_stock


class Originals:
    """The values that some names had when this was made.

    Args:
        named: modules or classes, each with names in it.
    """

    __slots__ = ("_named", "_stock", "_then")

    def __init__(self, *named: tuple[Any, Sequence[str]]) -> None:
        self._named = [(attrgetter(*names, names[0]), owner) for owner, names in named if names]
        self._then = self._now()
        self._stock = self._then is not None and all(is_stock(each) for found in self._then for each in found)

    def hold(self) -> bool:
        """Whether the names have the same values now, and these are torch's or torchvision's own."""
        return self._stock and self._now() == self._then

    def _now(self) -> list[tuple[Any, ...]] | None:
        """The current values; None if a name is gone."""
        try:
            return [get(owner) for get, owner in self._named]
        except (AttributeError, BackendUnavailable):  # the latter: the module is gone
            return None
