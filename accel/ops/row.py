"""The classes of the table's rows, one for each kind of op, which says how the planner fuses it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import torch
from PIL import Image

from accel.ops.index import Index

Params = tuple[Any, ...]
Size = tuple[int, int]
Shape = tuple[int, int, int]
Axes = tuple[Index, Index]
EffectKind = Literal["statistic", "mix", "neighbourhood", "warp", "torchvision"]
Takes = Literal["image", "pixels", "floats"]


class Subject(Protocol):
    """The image that an op is recorded on: the state of a lazy tensor, or a ``Picture``."""

    @property
    def shape(self) -> Shape: ...

    @property
    def dtype(self) -> torch.dtype: ...


class Picture(NamedTuple):
    """A Pillow image for the checks of arguments; ``shape``: (channels, height, width)."""

    shape: Shape
    dtype: torch.dtype = torch.uint8


Accept = Callable[[Subject, Params], Params | None]
"""A check of a call's arguments after the first, in order; it returns the step's parameters, None: not recorded."""


def always(params: Params) -> bool:
    return True


@dataclass(frozen=True, eq=False)
class Op:
    """One row of the table.

    Attributes:
        name: its name, that of torchvision's functional.
        reference: torchvision's (or Pillow's, or torch's) own function on (image or tensor, parameters), which the op
            equals, and which records it on a lazy one.
        params: the names of a step's parameters, in order.
        samples: parameters to try it with.
        hooks: dotted names of functions that record just this op, each with its check of the arguments. Functions that
            record it along with others are in ``accel.hooks``.
        takes: the input of ``reference``: a Pillow image, a uint8 tensor, or a float one.
        size: (input size, parameters) -> output size, both (height, width).
        channels: (input channels, parameters) -> output channels.
        keeps: (input channels, parameters) -> whether it leaves an image with so many channels as it is.
        renews: parameters -> whether Pillow makes the result without the ``info`` of the image; None: never.
        holds_tensors: whether there is a tensor among its parameters, too large to be remembered with a plan.
    """

    name: str
    reference: Callable[[Any, Params], Any]
    params: tuple[str, ...] = ()
    samples: tuple[Params, ...] = ((),)
    _: KW_ONLY
    hooks: Mapping[str, Accept] = field(default_factory=dict)
    takes: Takes = "image"
    size: Callable[[Size, Params], Size] = lambda size, params: size
    channels: Callable[[int, Params], int] = lambda channels, params: channels
    keeps: Callable[[int, Params], bool] = lambda channels, params: False
    renews: Callable[[Params], bool] | None = None
    holds_tensors: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class IndexOp(Op):
    """An op whose output pixels are input pixels or a fill colour, by separate maps of rows and columns
    (``accel.ops.index``).

    Attributes:
        lower: (maps of rows and columns before it, parameters, code of the fill colour) -> the maps after it.
        fill: (parameters, channels) -> the colour that it may bring in, one value per channel; None: it has none.
        fills: (input size, parameters) -> whether that colour may show.
    """

    lower: Callable[[Axes, Params, int], Axes]
    fill: Callable[[Params, int], tuple[int, ...]] | None = None
    fills: Callable[[Size, Params], bool] = lambda size, params: True


class ResampleOp(Op):
    """Pillow's two-pass resize, or torch's; the parameters are height, width and the filter's code."""


@dataclass(frozen=True, eq=False, kw_only=True)
class LutOp(Op):
    """An op whose uint8 output values each depend on one input value of their channel: a table of [channels, 256].

    Attributes:
        levels: the op itself, run by Pillow on a picture (of all levels).
    """

    levels: Callable[[Image.Image, Params], Image.Image]


@dataclass(frozen=True, eq=False, kw_only=True)
class EffectOp(Op):
    """An op whose output values depend on several input values: a backend has a kernel for it, or the host runs the
    reference.

    Attributes:
        kind: what an output pixel depends on: the same input pixel and a *statistic* of the whole image; a *mix* of the
            channels of the same input pixel, and nothing else; its *neighbourhood*; another place, by rows and columns
            together (a *warp*); or what only *torchvision* or Pillow knows.
    """

    kind: EffectKind


@dataclass(frozen=True, eq=False, kw_only=True)
class TensorOp(Op):
    """An op on values of any dtype.

    Attributes:
        apply: the op itself on a tensor [..., C, H, W].
        elementwise: whether the result for an image is the same alone and in a batch.
    """

    apply: Callable[..., torch.Tensor]
    elementwise: bool = True
    takes: Takes = "floats"


@dataclass(frozen=True, eq=False, kw_only=True)
class ValueOp(TensorOp):
    """An op that treats every value by itself: run on 0..255 it gives a table of values.

    Attributes:
        drawn: whether its parameters are drawn for every image; a table of float values for each image is too slow.
    """

    drawn: bool = False


class PatchOp(TensorOp):
    """An op that replaces the values of a rectangle by values given with the step."""


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelOp(TensorOp):
    """torchvision's own function on tensors, which is run on the computed values, on the device where they are.

    All later steps, of whatever kind, are then run in the same way (``accel.runtime.torch_ops``).

    Attributes:
        memory: the memory layout of its result, whatever the input's: planar or interleaved; None: the input's.
    """

    elementwise: bool = False
    memory: Literal["planar", "interleaved"] | None = None


def target_size(size: Size, params: Params) -> Size:
    """The output (height, width) of an op whose first two parameters are these."""
    return params[0], params[1]
