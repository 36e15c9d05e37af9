"""torchvision's functions on lazy tensors that no step of accel's own is equal to.

Where each value is treated by itself that becomes part of a table; else torchvision's own function will be run on the
values, when they are there and where they are (``accel.runtime.torch_ops``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from math import prod
from typing import Any, TypeVar

import torch

from accel.hooks.patch import found
from accel.hooks.recording.calls import Call
from accel.hooks.recording.tensor_geometry import ON_PIXELS, inside, takes_pixels
from accel.hooks.recording.tensor_values import recorded_value
from accel.lazy.tensor_base import LazyTensorBase, is_lazy
from accel.ops import OPS, Op, Params, tensor_op
from accel.ops.accept import in_float32, without_autocast
from accel.ops.row import KernelOp, ValueOp
from accel.ops.tensors import DTYPES, frozen

T = TypeVar("T", bound=LazyTensorBase)


@cache
def _call(name: str) -> Call:
    """How the one function that records a row is called."""
    ((hook, accept),) = OPS[name].hooks.items()
    return Call.of(found(hook), accept)


def recorded(image: T, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> T | None:
    """The tensor after a call of the function ``name`` of the table; None where torchvision decides."""
    lazy = image.lazy
    on_pixels = ON_PIXELS.get(name)
    if on_pixels is not None and takes_pixels(image):
        with suppress(Exception):  # torchvision says what is wrong
            moved = on_pixels(image, *args, **kwargs)
            if moved is not None:
                return moved  # type: ignore[return-value]
    if lazy.shape[0] not in (1, 3) or lazy.dtype not in DTYPES:
        return None
    op = tensor_op(name)
    if not in_float32() or not (op.elementwise or without_autocast()):
        return None
    params = _call(name).params(lazy, args, kwargs)
    if params is None:
        return None
    params = tuple(map(frozen, params))
    if isinstance(op, ValueOp) and not (params and lazy.dtype.is_floating_point):  # a float table for one image is dear
        return recorded_value(image, (name, params), lazy.dtype)
    if _changes_nothing(image, op, params):
        return image
    crops = name.endswith(".crop")
    memory = op.memory if isinstance(op, KernelOp) else None
    planar = (
        (memory == "planar" and not _only_turns_over(name, params))
        or (lazy.view and name == "v2.resize")
        or (crops and not inside(image, *params))
    )
    called = image.then_kernel(name, params, interleaved=memory == "interleaved" or (lazy.interleaved and not planar))
    if crops and inside(image, *params):
        called.lazy.view = lazy.view or params[3] < lazy.shape[2]
    return called


def _changes_nothing(image: LazyTensorBase, op: Op, params: Params) -> bool:
    """Whether torchvision's function returns the image itself."""
    channels, *size = image.lazy.shape
    if op.name == "v2.resize":
        return list(op.size((size[0], size[1]), params)) == size
    return op.keeps(channels, params)


def _only_turns_over(name: str, params: Params) -> bool:
    """Whether it is a rotation by 0 or 180 degrees, which v2 does by flips."""
    return name == "v2.rotate" and params[0] % 180 == 0 and params[3] is None


def linear_transformation(original: Callable[..., Any]) -> Callable[..., Any]:
    """``LinearTransformation.forward`` of v1, ``transform`` of v2."""

    @functools.wraps(original)
    def transform(self: Any, inpt: Any, *params: Any) -> Any:
        matrix, mean = self.transformation_matrix, self.mean_vector
        if is_lazy(inpt) and isinstance(inpt, LazyTensorBase) and len(inpt.lazy.recipes) == 1:
            lazy = inpt.lazy
            fits = prod(lazy.shape) == matrix.shape[0] and matrix.device.type == mean.device.type == "cpu"
            if fits and not (lazy.after or matrix.requires_grad or mean.requires_grad) and without_autocast():
                dtype = torch.promote_types(lazy.dtype, mean.dtype)
                return inpt.then_kernel("linear_transformation", (matrix, mean), dtype)
        return original(self, inpt, *params)

    return transform
