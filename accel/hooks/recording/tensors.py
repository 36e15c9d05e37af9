"""torchvision's functions on lazy tensors that no step of accel's own is equal to.

Where each value is treated by itself that becomes part of a table; else torchvision's own function will be run on the
values, when they are there and where they are (``accel.runtime.torch_ops``).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any, TypeVar

import torch
from torchvision.transforms.v2 import functional as F

from accel.hooks.recording import tensor_geometry
from accel.hooks.recording.accepted import ACCEPTED, NotFinite
from accel.hooks.recording.images import AUTOCAST, OTHER_DEFAULT
from accel.lazy.state import LazyState
from accel.lazy.tensor_base import LazyTensorBase, is_lazy
from accel.ops import OPS, Op, Params
from accel.ops.tensor_kernels import DTYPES, F_t, frozen
from accel.planning import order
from accel.recipe import Step
from accel.system import arithmetic, counters

T = TypeVar("T", bound=LazyTensorBase)


@cache
def _defaults(name: str) -> dict[str, Any]:
    version, function = name.split(".")
    parameters = list(inspect.signature(getattr(F_t if version == "v1" else F, function)).parameters.values())[1:]
    assert tuple(each.name for each in parameters) == OPS[name].params, name
    return {each.name: each.default for each in parameters if each.default is not each.empty}


def recorded(image: T, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> T | None:
    """The tensor after a call of the function ``name`` of the table; None where torchvision decides."""
    op, lazy = OPS[name], image.lazy
    steps = tensor_geometry.steps(lazy, name, args, kwargs)
    if steps is None:
        params = _accepted(lazy, op, args, kwargs)
        if params is None:
            return None
        steps = () if _changes_nothing(lazy, op, params) else ((name, params),)
    return _then(image, op, steps) if steps else image


def _accepted(lazy: LazyState, op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Params | None:
    """The parameters of a step of the function itself; None where it is to run at once."""
    if lazy.shape[0] not in (1, 3) or lazy.dtype not in DTYPES:
        return None
    if not arithmetic.is_default():
        counters.fallback(OTHER_DEFAULT)
        return None
    if op.kind == "kernel" and not op.elementwise and arithmetic.autocasts():
        counters.fallback(AUTOCAST)
        return None
    params = given(op.params, args, kwargs, _defaults(op.name))
    try:
        params = None if params is None else ACCEPTED[op.name](lazy, params)
    except NotFinite:
        raise
    except Exception:
        return None  # torchvision says what is wrong
    return None if params is None else tuple(map(frozen, params))


def _changes_nothing(lazy: LazyState, op: Op, params: Params) -> bool:
    """Whether torchvision's function returns the image itself."""
    channels, *size = lazy.shape
    if op.name == "v2.grayscale_to_rgb":
        return channels == 3
    if op.name == "v2.resize":
        return list(op.size((size[0], size[1]), params)) == size
    return channels == 1 and op.name.split(".")[1] in ("adjust_hue", "adjust_saturation")


def _then(image: T, op: Op, steps: tuple[Step, ...]) -> T:
    """The tensor after a call, as which these steps are recorded; it lies in memory as torchvision's does."""
    lazy, (name, params) = image.lazy, steps[0]
    planar, view = op.planar, False
    if op.name in ("v1.crop", "v2.crop"):
        planar = OPS["crop"].fills(lazy.shape[1:], params)
        view = not planar and (lazy.view or params[3] < lazy.shape[2])
    elif op.name == "v2.resize":
        planar = lazy.view
    elif planar and name == "v2.rotate" and params[0] % 180 == 0 and params[3] is None:
        planar = False  # by flips
    interleaved = op.interleaved or (lazy.interleaved and not planar)
    called = image.then(*steps, interleaved=interleaved, kernel=order.is_kernel(name, lazy.dtype))
    called.lazy.view = view
    return called


def given(names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any], defaults: dict[str, Any]) -> Any:
    """The arguments in the order of ``names``; None for what is no call of such a function."""
    rest = {**defaults, **kwargs}
    try:
        given = (*args, *(rest.pop(name) for name in names[len(args) :]))
    except KeyError:
        return None
    unknown = set(rest) - set(defaults)
    return None if unknown or len(given) != len(names) else given


def linear_transformation(original: Callable[..., Any]) -> Callable[..., Any]:
    """``LinearTransformation.forward`` of v1, ``transform`` of v2."""

    @functools.wraps(original)
    def transform(self: Any, inpt: Any, *params: Any) -> Any:
        matrix, mean = self.transformation_matrix, self.mean_vector
        if is_lazy(inpt) and isinstance(inpt, LazyTensorBase) and len(inpt.lazy.recipes) == 1:
            lazy = inpt.lazy
            fits = prod(lazy.shape) == matrix.shape[0] and matrix.device.type == mean.device.type == "cpu"
            if fits and not lazy.after and not (matrix.requires_grad or mean.requires_grad):
                if not arithmetic.autocasts():
                    dtype = torch.promote_types(lazy.dtype, mean.dtype)
                    return inpt.then(("linear_transformation", (matrix, mean)), dtype=dtype, kernel=True)
                counters.fallback(AUTOCAST)
        return original(self, inpt, *params)

    return transform
