"""How torchvision's tensor of an image lies in memory after each step.

It decides bits: torch's vectorised loops round the values at their ends differently, and its sums depend on the order.
"""

from __future__ import annotations

from accel.codec.header import Header, Raw
from accel.ops import OPS, Op, Params
from accel.ops.layout import PLANAR, Layout
from accel.ops.row import IndexOp, KernelOp, PatchOp, ValueOp
from accel.planning import order
from accel.planning.order import Steps
from accel.recipes.recipe import Step

Shape = tuple[int, int, int]
"""(channels, height, width)."""


def of(steps: Steps, header: Header | Raw) -> Layout | None:
    """The layout after all steps that were recorded on an image; None if they make no tensor of it."""
    return after(steps, (header.channels, header.height, header.width), None)


def after(steps: Steps, shape: Shape, layout: Layout | None, several: bool = False) -> Layout | None:
    """The layout after steps; ``shape`` and ``layout``: of the image before them, None: of a Pillow image.

    ``several``: whether the steps are done to a batch of several images.
    """
    for name, params in steps:
        op = OPS[name]
        if name in _TO_TENSOR:
            layout = Layout(name == "pil_to_tensor")
        elif name == "in_memory":
            layout = Layout(*params)
        elif layout is not None:
            layout = _after((name, params), shape, layout, several)
        if not isinstance(op, ValueOp):
            height, width = op.size((shape[1], shape[2]), params)
            shape = op.channels(shape[0], params), height, width
    return layout


def _after(step: Step, shape: Shape, layout: Layout, several: bool) -> Layout:
    name, params = step
    if name in _CROPS:
        if not order.shows(("crop", params), shape[1:]):
            return PLANAR
        return layout if params[2:] == shape[1:] else layout._replace(whole=layout.whole or shape[1:])
    if name in _GREYS and shape[0] == params[0] == 3:
        return Layout(expanded=True)
    if name in _RESIZES:
        # torch keeps the order of what it takes for channels_last
        fewer_columns = layout.whole is not None and layout.whole[1] != shape[2]
        memory = "planar" if fewer_columns and not several else None
    elif name == "v2.rotate" and params[0] % 180 == 0 and params[3] is None:
        memory = None  # torchvision does it by flips
    elif name in _PADS and _pads_nothing(name, params):
        memory = None  # torch clones
    else:
        memory = _MEMORY[name]
    return Layout(layout.interleaved if memory is None else memory == "interleaved")


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
_GREYS = {"v1.rgb_to_grayscale", "v2.rgb_to_grayscale"}
_CROPS, _RESIZES = {"crop", "v1.crop", "v2.crop"}, {"resize", "nearest", "nearest_exact", "v2.resize"}
