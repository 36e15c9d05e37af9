"""THE TABLE: one row for every op that accel records.

A row has everything that the planner, the hooks and the tests need to know. Its class says how it is fused
(``accel.ops.row``), and which kernels a backend needs: one for all index ops, resamplings, lookup tables, value ops and
patches; one for each effect; none for torchvision's own functions on tensors.
"""

from __future__ import annotations

from accel.ops import colour, filters, geometry, helpers, tensor_geometry, values, warp
from accel.ops.row import Op, Params, TensorOp, ValueOp

__all__ = ["LEFT", "OPS", "Left", "Op", "Params", "shape_after", "tensor_op"]

OPS: dict[str, Op] = {
    row.name: row for file in (geometry, colour, filters, warp, values, tensor_geometry, helpers) for row in file.ROWS
}
"""The rows by name."""

LEFT: dict[str, str] = {}
"""Ops that are left to torchvision and Pillow, as accel's results were other than theirs (``accel.hooks.self_test``),
each with the reason."""


class Left(Exception):
    """A step on a tensor is one of ``LEFT``: whoever would record it calls torchvision."""


def shape_after(shape: tuple[int, int, int], *steps: tuple[str, Params]) -> tuple[int, int, int]:
    """The (channels, height, width) of an image after steps."""
    for name, params in steps:
        op = OPS[name]
        if not isinstance(op, ValueOp):
            height, width = op.size((shape[1], shape[2]), params)
            shape = op.channels(shape[0], params), height, width
    return shape


def tensor_op(name: str) -> TensorOp:
    """The row of an op on values."""
    row = OPS[name]
    assert isinstance(row, TensorOp), f"{name} is no op on values"
    return row
