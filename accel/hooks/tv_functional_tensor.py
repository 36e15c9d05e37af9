"""``torchvision.transforms._functional_tensor``: on lazy tensors its functions are recorded."""

from __future__ import annotations

from typing import Any

from accel.hooks.patch import Body, Function
from accel.hooks.recording.accepted import ACCEPTED
from accel.hooks.recording.tensor_values import is_recorded
from accel.hooks.recording.tensors import recorded
from accel.lazy.tensor_base import is_lazy, values_of
from accel.ops.tensor_kernels import V1


def _recorder(name: str) -> Function:
    """The recorder of a function of ``torchvision.transforms._functional_tensor``."""

    def function(original: Function, img: Any, *args: Any, **kwargs: Any) -> Any:
        lazy = recorded(img, f"v1.{name}", args, kwargs) if is_recorded(img) else None
        if lazy is not None:
            return lazy
        return original(values_of(img) if is_lazy(img) else img, *args, **kwargs)

    return function


PATCHES = tuple(Body(f"torchvision.transforms._functional_tensor.{name}", _recorder(name)) for name in V1)

assert set(V1) == {name.removeprefix("v1.") for name in ACCEPTED if name.startswith("v1.")}
