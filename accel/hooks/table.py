"""Functions of torchvision's and Pillow's that a row of the table of ops names: on lazy ones they record it.

On eager Pillow images torchvision's functions do so, too; Pillow's own make what they always made.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from accel.hooks.patch import Body, Function, Patch, Shortcut, found
from accel.hooks.recording.images import recorder
from accel.hooks.recording.tensor_values import is_recorded
from accel.hooks.recording.tensors import recorded
from accel.hooks.v2_kernels import kernels
from accel.lazy.tensor_base import is_lazy, values_of
from accel.ops import OPS, Op
from accel.ops.row import Accept
from accel.system.private_names import private


def _of_v1(name: str, original: Function, img: Any, *args: Any, **kwargs: Any) -> Any:
    """A function of ``torchvision.transforms._functional_tensor``."""
    lazy = recorded(img, name, args, kwargs) if is_recorded(img) else None
    if lazy is not None:
        return lazy
    return original(values_of(img) if is_lazy(img) else img, *args, **kwargs)


def _patches(row: Op, hook: str, accept: Accept) -> tuple[Patch, ...]:
    if row.takes == "image":
        return (Shortcut(hook, recorder(row, accept, lazy_only=hook.startswith("PIL."))),)
    if row.name.startswith("v1."):
        return (Body(hook, partial(_of_v1, row.name)),)
    module, _, name = hook.rpartition(".")
    if not hasattr(private(module, name), name):
        return ()
    return kernels(found(hook), lambda image, *args, **kwargs: recorded(image, row.name, args, kwargs))


PATCHES = tuple(
    patch for row in OPS.values() for hook, accept in row.hooks.items() for patch in _patches(row, hook, accept)
)
