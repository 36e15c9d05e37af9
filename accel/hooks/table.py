"""Functions of torchvision's and Pillow's that a row of the table of ops names: on lazy images they record the op.

On eager Pillow images torchvision's functions record it, too; Pillow's own functions run as always.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from accel.hooks.patch import Body, Patch, Shortcut, found
from accel.hooks.recording.images import recorder
from accel.hooks.recording.tensor_values import by_v1
from accel.hooks.recording.tensors import recorded
from accel.hooks.v2_functional import kernels
from accel.lazy.tensor_base import LazyTensorBase
from accel.ops import OPS, Op
from accel.ops.row import Accept
from accel.system.private_names import private


def _patches(row: Op, hook: str, accept: Accept) -> tuple[Patch, ...]:
    if row.takes == "image":
        return (Shortcut(hook, partial(recorder, row, accept, hook.startswith("PIL."))),)

    def record(image: LazyTensorBase, *args: Any, **kwargs: Any) -> LazyTensorBase | None:
        return recorded(image, row.name, args, kwargs)

    if row.name.startswith("v1."):
        return (Body(hook, partial(by_v1, record)),)
    module, _, name = hook.rpartition(".")
    return kernels(found(hook), record) if hasattr(private(module, name), name) else ()


PATCHES = tuple(
    patch for row in OPS.values() for hook, accept in row.hooks.items() for patch in _patches(row, hook, accept)
)
