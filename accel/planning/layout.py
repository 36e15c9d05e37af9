"""How torchvision's tensor of an image lies in memory.

It decides bits: torch's vectorised loops round the values at their ends differently, and its sums depend on the order.
"""

from __future__ import annotations

from typing import NamedTuple

from accel.codec.header import Header, Raw
from accel.ops import OPS, Op, Params
from accel.ops.row import IndexOp, KernelOp, PatchOp, ValueOp
from accel.planning import order
from accel.planning.order import Steps
from accel.recipes.recipe import Step

Shape = tuple[int, int, int]
"""(channels, height, width)."""


class Layout(NamedTuple):
    """``interleaved``: in the order [height, width, channels], else [channels, height, width].

    ``view``: if it is a view of a part of a tensor with more rows or columns, the width of that tensor; 0: dense.
    """

    interleaved: bool
    view: int = 0


def of(steps: Steps, header: Header | Raw) -> Layout | None:
    """The layout after all steps that were recorded on an image; None if they make no tensor of it."""
    return after(steps, (header.channels, header.height, header.width), None)


def after(steps: Steps, shape: Shape, layout: Layout | None) -> Layout | None:
    """The layout after steps; ``shape`` and ``layout``: of the image before them, None: of a Pillow image."""
    for name, params in steps:
        op = OPS[name]
        if name in _TO_TENSOR:
            layout = Layout(name == "pil_to_tensor")
        elif name == "in_memory":
            layout = Layout(*params)
        elif layout is not None:
            layout = _after((name, params), shape, layout)
        if not isinstance(op, ValueOp):
            height, width = op.size((shape[1], shape[2]), params)
            shape = op.channels(shape[0], params), height, width
    return layout


def _after(step: Step, shape: Shape, layout: Layout) -> Layout:
    name, params = step
    interleaved, view = layout
    if name in _CROPS:
        if not order.shows(("crop", params), shape[1:]):
            return Layout(interleaved=False)
        channels, height, width = shape
        apart = params[3] < width or (params[2] < height and channels > 1 and not interleaved)
        return Layout(interleaved, view or (width if apart else 0))
    if name in _RESIZES:
        memory = "planar" if view else None
    elif name == "v2.rotate" and params[0] % 180 == 0 and params[3] is None:
        memory = None  # torchvision does it by flips
    elif name in _PADS and _pads_nothing(name, params):
        memory = None  # torch clones
    else:
        memory = _MEMORY[name]
    return Layout(interleaved if memory is None else memory == "interleaved")


def _memory(op: Op) -> str | None:
    if isinstance(op, KernelOp):
        return op.memory
    return None if isinstance(op, (ValueOp, PatchOp)) or (isinstance(op, IndexOp) and op.fill is None) else "planar"


_MEMORY = {name: _memory(op) for name, op in OPS.items()}
"""The order of torchvision's tensor after each op, whatever it was before; None: as before."""


def _pads_nothing(name: str, params: Params) -> bool:
    """Whether a constant pad adds no pixel."""
    padding, mode = (params[:4], params[4]) if name == "pad" else (params[0], params[2])
    return mode == "constant" and not any(padding if isinstance(padding, tuple) else (padding,))


_TO_TENSOR = ("to_tensor", "pil_to_tensor")
_PADS = {"pad", "v1.pad", "v2.pad"}
_CROPS, _RESIZES = {"crop", "v1.crop", "v2.crop"}, {"resize", "nearest", "nearest_exact", "v2.resize"}
