"""THE TABLE: one row for every op that accel records.

A row states what the planner and the tests need to know. Its kind says how it is fused, and what a backend adds:

- ``mode``: which channels the source is decoded to;
- ``index``: every output pixel is one input pixel or a fill colour, rows and columns apart (``accel.ops.index``);
- ``resample``: Pillow's two-pass resize;
- ``levels``: every uint8 output value depends on one input value of the same channel: a table of 256 entries per
  channel, made by running Pillow itself on 0..255, and composed with the tables before and after it;
- ``value``: the same on tensors of any dtype, made by running torchvision itself on 0..255;
- ``patch``: values given with the step take the place of a rectangle's;
- ``kernel``: torchvision's own function on tensors, which is run on the values when they are there, wherever that is
  (``accel.runtime.torch_ops``). After one, all that follows runs so, whatever its kind.

A backend has one kernel for all ops of each of these kinds. Those of the other kinds are effects, each with a
kernel of its own:

- ``statistic``: a table of levels that depends on the whole image;
- ``mix``: every output pixel depends on the same input pixel alone, across channels;
- ``neighbourhood``: every output pixel depends on the input pixels around it;
- ``warp``: every output pixel shows a place of the input, rows and columns together;
- ``torchvision``: left to the reference itself, which the host runs when the pixels are there.
"""

from __future__ import annotations

from accel.ops import colour, helpers, pixels, tensor_kernels, values, warp
from accel.ops.row import Kind, Op, Params

__all__ = ["OPS", "Kind", "Op", "Params"]

OPS: dict[str, Op] = {
    row.name: row for file in (pixels, colour, warp, values, tensor_kernels, helpers) for row in file.ROWS
}
"""The rows by name."""
