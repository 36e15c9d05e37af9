"""How rows for torchvision's functions on tensors are made: those of v1 and of v2, which differ in their arithmetic.

Those that treat each value by itself are value ops: they become tables. The others are kernels: torchvision's own
function is run on the values, image by image, when these are there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torchvision.transforms.v2 import functional as F2

from accel.ops.row import Accept, Params, TensorOp
from accel.system.private_names import private

DTYPES = (torch.uint8, torch.float32, torch.float64)
"""The dtypes that kernels are recorded for; what torch makes of halves depends on how they lie in memory."""

_V1, _V2 = "torchvision.transforms._functional_tensor", "torchvision.transforms.v2.functional"


def frozen(value: Any) -> Any:
    """A parameter as it is recorded: lists as tuples, which can be compared and hashed."""
    return tuple(map(frozen, value)) if isinstance(value, list) else value


def thawed(value: Any) -> Any:
    """A parameter as torchvision takes it."""
    return list(value) if isinstance(value, tuple) else value


def tensor_row(
    version: int,
    name: str,
    params: tuple[str, ...],
    samples: tuple[Params, ...],
    accept: Accept,
    kind: Callable[..., TensorOp],
    **more: Any,
) -> TensorOp:
    """The row of a function that v1 or v2 of torchvision has for tensors, and that records it.

    Args:
        version: 1 or 2.
        name: the function's.
        params: its parameters after the first.
        samples: see ``Op``.
        accept: see ``Accept``.
        kind: the row's class, with what is special to it.
        **more: other attributes of the row.
    """
    module = private(_V1, name) if version == 1 else F2

    def apply(values: Any, *given: Any) -> Any:
        return getattr(module, name)(values, *map(thawed, given))

    more = {"apply": apply, "reference": lambda tensor, given: apply(tensor, *given), **more}
    hook = f"{_V1 if version == 1 else _V2}.{name}"
    return kind(f"v{version}.{name}", params=params, samples=samples, hooks={hook: accept}, **more)
