"""The tensors in a batch or in a step's result, whatever holds them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import torch


def mapped(value: Any, kinds: type | tuple[type, ...], function: Callable[[Any], Any]) -> Any:
    """The same structure with ``function`` of each part that is of these classes.

    Tuples, lists and mappings are looked into, as by torch's ``pin_memory``; everything else is one part.
    """
    if isinstance(value, kinds):
        return function(value)
    if isinstance(value, Mapping):
        parts = {key: mapped(part, kinds, function) for key, part in value.items()}
        if not isinstance(value, MutableMapping) or type(value) is dict:
            return type(value)(parts)  # type: ignore[call-arg]
        made = copy.copy(value)
        made.update(parts)
        return made
    if isinstance(value, (tuple, list)) and not hasattr(value, "to"):
        items = [mapped(part, kinds, function) for part in value]
        if type(value) in (tuple, list):
            return type(value)(items)
        if isinstance(value, list):
            like: list[Any] = copy.copy(value)
            like[:] = items
            return like
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def leaves(value: Any) -> list[torch.Tensor]:
    """The tensors of a structure, in order."""
    found: list[torch.Tensor] = []
    mapped(value, torch.Tensor, found.append)
    return found


def form(value: Any) -> Any:
    """What two batches have in common if one captured step serves both: everything but the tensors' values."""
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        return type(value), value.shape, value.stride(), value.dtype, value.device
    if isinstance(value, Mapping):
        return type(value), [(key, form(part)) for key, part in value.items()]
    if isinstance(value, (tuple, list)):
        return type(value), [form(part) for part in value]
    return value if isinstance(value, _PLAIN) else object()  # of which none equals another


_PLAIN = (int, float, bool, str, bytes, type(None))
