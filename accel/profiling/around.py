"""Putting clocks around attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from accel.hooks.patch import Undo, attribute, found

Function = Callable[..., Any]


def around(name: str, make: Callable[[Any], Any]) -> Undo:
    """Replace an attribute of a module or class, given by its dotted name, by ``make`` of it; return how to undo it."""
    owner, _, attribute_name = name.rpartition(".")
    place = found(owner)
    return attribute(place, attribute_name, make(vars(place).get(attribute_name) or getattr(place, attribute_name)))
