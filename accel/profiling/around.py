"""Clocks in the place of what they are put around."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from accel.hooks.patch import Undo, attribute, found

Function = Callable[..., Any]


def around(name: str, make: Callable[[Any], Any]) -> Undo:
    """Put what ``make`` makes of it in the place of an attribute, whose name is dotted, of a module or a class."""
    owner, _, attribute_name = name.rpartition(".")
    place = found(owner)
    return attribute(place, attribute_name, make(vars(place).get(attribute_name) or getattr(place, attribute_name)))
