"""THE TABLE: one row for every op that accel records.

A row states all that the planner, the hooks and the tests need to know. Its class says how it is fused
(``accel.ops.row``), and what a backend adds: one kernel for all index ops, resamplings, lookup tables, value ops and
patches; a kernel of its own for each effect. torchvision's own functions on tensors need none.
"""

from __future__ import annotations

from accel.ops import colour, filters, helpers, pixels, tensor_geometry, values, warp
from accel.ops.row import Op, Params, TensorOp

__all__ = ["OPS", "Op", "Params", "tensor_op"]

OPS: dict[str, Op] = {
    row.name: row for file in (pixels, colour, filters, warp, values, tensor_geometry, helpers) for row in file.ROWS
}
"""The rows by name."""


def tensor_op(name: str) -> TensorOp:
    """The row of an op on values."""
    row = OPS[name]
    assert isinstance(row, TensorOp), f"{name} is no op on values"
    return row
