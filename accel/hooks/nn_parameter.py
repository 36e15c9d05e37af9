"""``torch.nn.Parameter``: of the values of a lazy tensor."""

from __future__ import annotations

import functools
from typing import Any

from accel.hooks.patch import Attribute, Function
from accel.lazy.tensor_base import LazyTensorBase


def _new(original: Function) -> Any:
    """``torch.nn.Parameter.__new__``: computes a lazy tensor first, for it makes something else of other classes."""

    @functools.wraps(original)
    def new(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        data = LazyTensorBase.materialize(data) if isinstance(data, LazyTensorBase) else data
        return original(cls, data, requires_grad)

    return staticmethod(new)


PATCHES = (Attribute("torch.nn.Parameter.__new__", _new),)
