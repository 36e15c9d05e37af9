"""torchvision's functions on lazy tensors that are recorded by name, as no step on pixels of accel's equals them.

One that treats each value by itself becomes part of a table; others are run by torchvision on the values, when and
where they are computed (``accel.runtime.torch_ops``).
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any, TypeVar

import torch

from accel.hooks.patch import Function, found
from accel.hooks.recording import tensor_geometry
from accel.hooks.recording.images import Call
from accel.lazy.state import ImageShape, LazyState
from accel.lazy.tensor_base import LazyTensorBase, is_lazy
from accel.ops import OPS, Op, Params, tensor_op
from accel.ops.accept import in_float32, without_autocast
from accel.ops.row import IndexOp, KernelOp, TensorOp, ValueOp
from accel.ops.tensors import DTYPES, frozen
from accel.planning import order
from accel.recipe import Step

T = TypeVar("T", bound=LazyTensorBase)


@cache
def _call(name: str) -> Call:
    """The signature of the one function that records a row."""
    ((hook, accept),) = OPS[name].hooks.items()
    return Call.of(found(hook), accept)


def recorded(image: T, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> T | None:
    """The tensor after a call of the function ``name`` of the table; None if torchvision must run it."""
    op, lazy = tensor_op(name), image.lazy
    steps = tensor_geometry.steps(lazy, name, args, kwargs)
    if steps is None:
        params = _accepted(lazy, op, args, kwargs)
        if params is None:
            return None
        channels, *size = lazy.shape
        resized = name != "v2.resize" or list(op.size((size[0], size[1]), params)) != size
        steps = ((name, params),) if resized and not op.keeps(channels, params) else ()
    return then(image, steps) if steps else image  # torchvision's function, too, returns the image unchanged


def _accepted(lazy: LazyState, op: TensorOp, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Params | None:
    """The parameters of a step that is the call itself; None if torchvision must run it."""
    if lazy.shape[0] not in (1, 3) or lazy.dtype not in DTYPES:
        return None
    if not in_float32() or not (op.elementwise or without_autocast()):
        return None
    params = _call(op.name).params(lazy, args, kwargs)
    return None if params is None else tuple(map(frozen, params))


def then(image: T, steps: tuple[Step, ...]) -> T:
    """The tensor after a call that is recorded as these steps, with the memory layout of torchvision's result."""
    lazy = image.lazy
    interleaved, view = lazy.interleaved, lazy.view
    if view and lazy.shape[0] == 1 and steps[0][0] in _CONTRASTS:
        steps = (("as_view", (view,)), *steps)
    for step in steps:
        interleaved, view = lying(step, lazy.shape, interleaved, view)
    called = image.then(*steps, interleaved=interleaved, kernel=order.is_kernel(steps[-1][0], lazy.dtype))
    called.lazy.view = view
    return called


def lying(step: Step, shape: ImageShape, interleaved: bool, view: int) -> tuple[bool, int]:
    """The memory layout (``interleaved``, ``view``; see ``LazyState``) of torchvision's tensor after a step."""
    name, params = step
    viewed, view = view, 0
    if name in _CROPS:
        memory = None if order.shows(("crop", params), shape[1:]) else "planar"
        if memory is None:
            view = viewed or (shape[2] if params[3] < shape[2] else 0)
    elif name in _RESIZES:
        memory = "planar" if viewed else None
    elif name == "v2.rotate" and params[0] % 180 == 0 and params[3] is None:
        memory = None  # torchvision does it by flips
    elif name in _PADS and _pads_nothing(name, params):
        memory = None  # torch clones
    else:
        memory = _MEMORY[name]
    return interleaved if memory is None else memory == "interleaved", view


def _memory(op: Op) -> str | None:
    if isinstance(op, KernelOp):
        return op.memory
    return None if isinstance(op, ValueOp) or (isinstance(op, IndexOp) and op.fill is None) else "planar"


_MEMORY = {name: _memory(op) for name, op in OPS.items()}
"""The memory layout of torchvision's tensor after each op, whatever it was before; None: as before."""


def _pads_nothing(name: str, params: Params) -> bool:
    """Whether a constant pad adds no pixel."""
    padding, mode = (params[:4], params[4]) if name == "pad" else (params[0], params[2])
    return mode == "constant" and not any(padding if isinstance(padding, tuple) else (padding,))


_CONTRASTS = {"v1.adjust_contrast", "v2.adjust_contrast"}  # for grey, they take the mean of the tensor itself
_PADS = {"pad", "v1.pad", "v2.pad"}
_CROPS, _RESIZES = {"crop", "v1.crop", "v2.crop"}, {"resize", "nearest", "nearest_exact", "v2.resize"}


def linear_transformation(original: Function, self: Any, inpt: Any, *params: Any) -> Any:
    """``LinearTransformation.forward`` of v1, ``transform`` of v2."""
    matrix, mean = self.transformation_matrix, self.mean_vector
    if is_lazy(inpt) and isinstance(inpt, LazyTensorBase) and len(inpt.lazy.recipes) == 1:
        lazy = inpt.lazy
        fits = prod(lazy.shape) == matrix.shape[0] and matrix.device.type == mean.device.type == "cpu"
        if fits and not (lazy.after or matrix.requires_grad or mean.requires_grad) and without_autocast():
            dtype = torch.promote_types(lazy.dtype, mean.dtype)
            return inpt.then(("linear_transformation", (matrix, mean)), dtype=dtype, kernel=True)
    return original(self, inpt, *params)
