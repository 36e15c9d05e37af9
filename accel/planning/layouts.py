"""How torchvision's tensor of an image lies in memory after each step.

It decides bits: torch's vectorised loops round the values at their ends differently, and its sums depend on the order.
"""

from __future__ import annotations

from accel.codec.header import Header, Raw
from accel.ops import OPS, Op, Params, shape_after
from accel.ops.memory_layout import INTERLEAVED, PLANAR, Layout
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
        if name in _TO_TENSOR:
            layout = Layout(name == "pil_to_tensor")
        elif name == "in_memory":
            layout = Layout(*params)
        elif layout is not None:
            layout = _after((name, params), shape, layout, several)
        shape = shape_after(shape, (name, params))
    return layout


def _after(step: Step, shape: Shape, layout: Layout, several: bool) -> Layout:
    name, params = step
    if name in _CROPS:
        if not order.shows(("crop", params), shape[1:]):
            return PLANAR
        return layout if params[2:] == shape[1:] else layout._replace(whole=layout.whole or shape[1:])
    if name in _GREYS and shape[0] == 1:
        return PLANAR if params[0] == 3 else layout.copied()
    if name in _BY_CHANNEL:
        return Layout(transposed=layout.transposed, expanded=name in _GREYS and shape[0] == params[0] == 3)
    if name == "v2.rotate" and _turns(params, shape):
        return layout.copied()._replace(transposed=layout.transposed != bool(params[0] % 180))
    memory = _MEMORY[name]
    if name in _PADS and _pads_nothing(name, params):
        memory = None  # torch clones
    elif name in _RESIZES:  # torch keeps the order of what it takes for channels_last
        fewer_columns = layout.whole is not None and layout.whole[1] != shape[2]
        plain = layout.transposed or shape[0] == 1
        memory = "planar" if plain or (fewer_columns and not several) else None
    return {None: layout.copied(), "interleaved": INTERLEAVED, "planar": PLANAR}[memory]


def differ_in_batch(step: Step, several: bool, shape: Shape, layout: Layout) -> bool:
    """Whether torchvision's batch of one or ``several`` images may lie otherwise after a step than ``after`` says."""
    name, params = step
    op = OPS[name]
    if layout.transposed or (not several and name in _GREYS):
        return True
    if isinstance(op, KernelOp) and "fill" in op.params and name not in _PADS:
        return params[op.params.index("fill")] is not None  # a view of a tensor with one more channel
    fills = name in _CROPS and not order.shows(("crop", params), shape[1:])
    resizes = not several and name in _RESIZES
    return layout.interleaved and (fills or resizes or name in _PADS or name in _KEEP_CHANNELS_LAST)


def _memory(op: Op) -> str | None:
    if isinstance(op, KernelOp):
        return op.memory
    return None if isinstance(op, (ValueOp, PatchOp)) or (isinstance(op, IndexOp) and op.fill is None) else "planar"


_MEMORY = {name: _memory(op) for name, op in OPS.items()}
"""The order of torchvision's tensor after each op, whatever it was before; None: as before."""


def _turns(params: Params, shape: Shape) -> bool:
    """Whether v2's ``rotate`` moves pixels by flips and an exchange of rows and columns, without interpolation."""
    angle, _, expand, center, _ = params
    return center is None and (angle % 180 == 0 or (angle % 90 == 0 and (bool(expand) or shape[1] == shape[2])))


def _pads_nothing(name: str, params: Params) -> bool:
    """Whether a constant pad adds no pixel."""
    padding, mode = (params[:4], params[4]) if name == "pad" else (params[0], params[2])
    return mode == "constant" and not any(padding if isinstance(padding, tuple) else (padding,))


_TO_TENSOR = ("to_tensor", "pil_to_tensor")
_PADS = {"pad", "v1.pad", "v2.pad"}
_GREYS = {"v1.rgb_to_grayscale", "v2.rgb_to_grayscale"}
_KEEP_CHANNELS_LAST = {"gaussian_blur", "v1.gaussian_blur", "v2.gaussian_blur", "v1.resize"}
_BY_CHANNEL = {*_GREYS, "permute_channels", "v2.permute_channels"}
_CROPS, _RESIZES = {"crop", "v1.crop", "v2.crop"}, {"resize", "nearest", "nearest_exact", "v2.resize"}
