"""Target transforms that are known to draw no random numbers and change nothing, which few callables are.

For these it makes no difference when a target is transformed. All others are called image by image, in their place
between the draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import BuiltinMethodType, MethodWrapperType
from typing import Any

import torch
from torch import nn
from torchvision import transforms as v1
from torchvision.transforms import v2

from accel.hooks.compiled import stock
from accel.hooks.compiled.stock import Refused

_PLAIN = frozenset({int, float, str, bool, type(None)})
_CALLED = frozenset({int, float, str, bool, abs, torch.tensor, torch.as_tensor})
_METHODS: dict[type, tuple[str, ...]] = {
    dict: ("get", "__getitem__"),
    list: ("__getitem__", "index"),
    tuple: ("__getitem__", "index"),
}


def transformed(transform: Any, targets: Sequence[Any]) -> Sequence[Any]:
    """The targets after a dataset's ``target_transform``.

    Raises:
        Refused: they must be transformed one by one.
    """
    if transform is None:
        return targets
    parts = _parts(transform)
    if not all(type(target) in _PLAIN for target in targets):
        raise Refused("there is a target_transform, and targets of an unusual kind")
    for part in parts:
        targets = [part(target) for target in targets]
    return targets


def _parts(transform: Any) -> Sequence[Callable[[Any], Any]]:
    """The functions that a target transform calls in order.

    Raises:
        Refused: one of them is not known.
    """
    cls = type(transform)
    if cls in (v1.Compose, v1.Lambda, nn.Identity, v2.Identity):
        own = vars(transform)
        stock.check(transform, cls, own)
        if cls is v1.Lambda:
            return _parts(own["lambd"])
        return [part for each in own.get("transforms", ()) for part in _parts(each)]
    called = transform
    if cls is partial and all(map(_is_plain, (*transform.args, *transform.keywords.values()))):
        called = transform.func
    if isinstance(called, (BuiltinMethodType, MethodWrapperType)) and called.__name__ in _METHODS.get(
        type(called.__self__), ()
    ):
        return [transform]
    if any(called is each for each in _CALLED):
        return [transform]
    raise Refused("what the target_transform does is not known")


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN or isinstance(value, torch.dtype)
