"""torchvision's functions on lazy tensors that are recorded by name, as no step on pixels of accel's equals them.

One that treats each value by itself becomes part of a table; others are run by torchvision on the values, when and
where they are computed (``accel.runtime.torch_ops``).
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any, TypeVar

import torch
from torchvision import tv_tensors

from accel.backend import backend_of
from accel.codec.header import Raw
from accel.hooks.patch import Function, found
from accel.hooks.recording import tensor_geometry
from accel.hooks.recording.images import Call
from accel.lazy import placed
from accel.lazy.state import LazyState
from accel.lazy.tensor_base import LazyTensorBase, is_lazy
from accel.ops import LEFT, OPS, Params, tensor_op
from accel.ops.accept import in_float32, without_autocast
from accel.ops.memory_layout import PLANAR
from accel.ops.row import TensorOp
from accel.ops.tensors import DTYPES, frozen
from accel.planning import layouts, order
from accel.recipes.recipe import Recipe, Source, Step
from accel.system.private_names import private

_geometry = private("torchvision.transforms.v2.functional._geometry", "_parse_pad_padding")

T = TypeVar("T", bound=LazyTensorBase)


@cache
def _call(name: str) -> Call:
    """The signature of the one function that records a row."""
    ((hook, accept),) = OPS[name].hooks.items()
    return Call.of(found(hook), accept)


def recorded(image: T, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> T | None:
    """The tensor after a call of the function ``name`` of the table; None if torchvision must run it."""
    op, lazy = tensor_op(name), image.lazy
    if name in LEFT:
        return None
    if name == "v2.pad" and lazy.dtype.is_floating_point:
        padded: T | None = _padded(image, *args, **kwargs)
        if padded is not None:
            return padded
    steps = tensor_geometry.steps(lazy, name, args, kwargs)
    if steps is None and tensor_geometry.may_be_pixels(name) and (pixels := _as_pixels(image)) is not None:
        steps = tensor_geometry.steps(pixels.lazy, name, args, kwargs)
        image, lazy = (image, lazy) if steps is None else (pixels, pixels.lazy)
    if steps is None:
        params = _accepted(lazy, op, args, kwargs)
        if params is None:
            return None
        channels, *size = lazy.shape
        new = [*op.size((size[0], size[1]), params)]
        if not {*map(type, new)} <= {int}:  # torchvision refuses it
            return None
        resized = name != "v2.resize" or new != size
        steps = ((name, params),) if resized and not op.keeps(channels, params) else ()
    return then(image, steps) if steps else image  # torchvision's function, too, returns the image unchanged


def _as_pixels(image: T) -> T | None:
    """A uint8 ``tv_tensors.Image`` on which torchvision's kernels were recorded as one of pixels, computed first.

    What follows is then one pass over these, and not one of torchvision's functions after another. None for others.
    """
    lazy = image.lazy
    (channels, height, width), (recipe, *more) = lazy.shape, lazy.recipes
    busy = (
        image.becomes is not tv_tensors.Image
        or more
        or lazy.lead
        or lazy.after
        or lazy.progress is not None
        or lazy.member is not None
    )
    if busy or lazy.dtype != torch.uint8 or channels not in (1, 3) or not order.has_kernels(recipe.steps):
        return None
    source = recipe.source
    blank = source.origin is None and source.is_read and not source.data  # what a program is found with
    if blank or backend_of(source.selection).devices:  # which would leave the pixels to the host
        return None
    header = Raw(width, height, "RGB" if channels == 3 else "L")
    pixels = Source(b"", header, source.name, source.selection, origin=recipe)
    pixels.way = source.way
    return image.of((Recipe(pixels, (("pil_to_tensor", ()),)),), (), lazy.shape, lazy.dtype, lazy.layout)


def _padded(image: LazyTensorBase, padding: Any, fill: Any = None, padding_mode: str = "constant") -> Any:
    """``pad`` of values by a constant, where that is recorded as moving them (``placed.recording``); else None."""
    left, right, top, bottom = _geometry._parse_pad_padding(padding)
    if isinstance(fill, (list, tuple)):
        return None
    padded = placed.pad(image, (left, right, top, bottom), padding_mode, fill)
    return None if padded is NotImplemented else padded


def _accepted(lazy: LazyState, op: TensorOp, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Params | None:
    """The parameters of a step that is the call itself; None if torchvision must run it."""
    if lazy.shape[0] not in (1, 3) or lazy.dtype not in DTYPES:
        return None
    if not in_float32() or not (op.elementwise or without_autocast()):
        return None
    params = _call(op.name).params(lazy, args, kwargs)
    return None if params is None else tuple(map(frozen, params))


def then(image: T, steps: tuple[Step, ...]) -> T | None:
    """The tensor after a call that is recorded as these steps, with the memory layout of torchvision's result.

    None if torchvision must run it, as that layout is not known.
    """
    lazy = image.lazy
    several = len(lazy.recipes) > 1
    if lazy.lead and any(layouts.differ_in_batch(step, several, lazy.shape, lazy.layout) for step in steps):
        return None
    lies = layouts.after(steps, lazy.shape, lazy.layout, several)
    kernel = order.is_kernel(steps[-1][0], lazy.dtype)
    if kernel and several and not (lazy.after or lazy.layout.usual):
        steps = (("in_memory", lazy.layout), *steps)
    return image.then(*steps, layout=lies, kernel=kernel)


def linear_transformation(original: Function, self: Any, inpt: Any, *params: Any) -> Any:
    """``LinearTransformation.forward`` of v1, ``transform`` of v2."""
    matrix, mean = self.transformation_matrix, self.mean_vector
    if is_lazy(inpt) and isinstance(inpt, LazyTensorBase) and len(inpt.lazy.recipes) == 1:
        lazy = inpt.lazy
        fits = prod(lazy.shape) == matrix.shape[0] and matrix.device.type == mean.device.type == "cpu"
        if fits and not (lazy.after or matrix.requires_grad or mean.requires_grad) and without_autocast():
            dtype = torch.promote_types(lazy.dtype, mean.dtype)
            return inpt.then(("linear_transformation", (matrix, mean)), dtype=dtype, layout=PLANAR, kernel=True)
    return original(self, inpt, *params)
