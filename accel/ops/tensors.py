"""Making rows for torchvision's functions on tensors: v1's and v2's, which differ in their arithmetic.

Functions that treat each value by itself are value ops, and become tables. The others are kernels: torchvision's own
function is run on the computed values, image by image.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torchvision.transforms.v2 import functional as F2

from accel.errors import BackendUnavailable
from accel.ops.accept import unchanged
from accel.ops.row import Accept, KernelOp, Params, TensorOp
from accel.system.private_names import private

DTYPES = (torch.uint8, torch.float32, torch.float64)
"""The dtypes that kernels are recorded for; torch's results for halves depend on how they lie in memory."""

_V1, _V2 = "torchvision.transforms._functional_tensor", "torchvision.transforms.v2.functional"


def frozen(value: Any) -> Any:
    """A parameter as it is recorded: lists become tuples, which can be compared and hashed."""
    return tuple(map(frozen, value)) if isinstance(value, list) else value


def thawed(value: Any) -> Any:
    """A recorded parameter as torchvision takes it: tuples become lists."""
    return list(value) if isinstance(value, tuple) else value


def tensor_row(
    version: int,
    name: str,
    kind: Callable[..., TensorOp],
    samples: tuple[Params, ...] = ((),),
    accept: Accept = unchanged,
    **more: Any,
) -> TensorOp:
    """The row of a function that v1 or v2 of torchvision has for tensors, and that records it.

    ``kind`` is the row's class with its special attributes, ``more`` further attributes of the row.
    """
    module = private(_V1, name) if version == 1 else F2

    def apply(values: Any, *params: Any) -> Any:
        return getattr(module, name)(values, *map(thawed, params))

    more = {"apply": apply, "reference": lambda tensor, params: apply(tensor, *params), **more}
    hooks = {f"{_V1 if version == 1 else _V2}.{name}": accept}
    return kind(f"v{version}.{name}", params=names(module, name), samples=samples, hooks=hooks, **more)


def tensor_rows(
    name: str,
    *alike: Any,
    v1: Mapping[str, Any] = MappingProxyType({}),
    v2: Mapping[str, Any] = MappingProxyType({}),
    **more: Any,
) -> tuple[TensorOp, TensorOp]:
    """The rows of a function that both v1 and v2 have (see ``tensor_row``); ``v1``, ``v2``: attributes that differ."""
    more |= dict(zip(("kind", "samples", "accept"), alike, strict=False))
    return tensor_row(1, name, **{**more, **v1}), tensor_row(2, name, **{**more, **v2})


def names(module: Any, name: str) -> tuple[str, ...]:
    """The names of a function's parameters after the first; () if the installed version lacks the function."""
    try:
        return tuple(inspect.signature(getattr(module, name)).parameters)[1:]
    except (AttributeError, BackendUnavailable):
        return ()


PLANAR = partial(KernelOp, memory="planar")
ELEMENTWISE = partial(KernelOp, elementwise=True)
