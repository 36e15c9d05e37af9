"""A row of the table: one class for each kind of op, which says how the planner fuses it."""

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
    """What an op is recorded on: the state of a lazy tensor, or a ``Picture``."""

    @property
    def shape(self) -> Shape: ...

    @property
    def dtype(self) -> torch.dtype: ...


class Picture(NamedTuple):
    """A Pillow image, as the checks of arguments see it: [channels, height, width]."""

    shape: Shape
    dtype: torch.dtype = torch.uint8


Accept = Callable[[Subject, Params], Params | None]
"""A check of a call's arguments after the first, in order: the step's parameters; None for what is not recorded."""


def always(params: Params) -> bool:
    return True


@dataclass(frozen=True, eq=False)
class Op:
    """One row.

    Attributes:
        name: as torchvision's functional names it.
        reference: torchvision's (or Pillow's, or torch's) own function on an image or tensor, with a step's
            parameters: what the op equals, and on a lazy one, what records it.
        params: the names of a step's parameters, in order.
        samples: parameters to try it with.
        hooks: dotted names of functions that record it and nothing else, each with its check of the arguments.
            Other calls are of ``accel.hooks``.
        takes: what it acts on first: a Pillow image, a uint8 tensor, or a float one.
        size: output (height, width) from the input's and the parameters.
        channels: channels of the output from the input's and the parameters.
        keeps: whether it leaves what has so many channels as it is.
        renews: whether Pillow makes the result anew, without the ``info`` of the image; None: never.
        holds_tensors: its parameters have a tensor among them, too large to be remembered with a plan.
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
    """Every output pixel is one input pixel or a fill colour, rows and columns apart (``accel.ops.index``).

    Attributes:
        lower: the maps of rows and columns after it, from those before it, the parameters, and the code of the fill
            colour that ``fill`` names.
        fill: the colour it may bring in, one value per channel from (params, channels).
        fills: whether that colour may show, from the input's size and the parameters.
    """

    lower: Callable[[Axes, Params, int], Axes]
    fill: Callable[[Params, int], tuple[int, ...]] | None = None
    fills: Callable[[Size, Params], bool] = lambda size, params: True


class ResampleOp(Op):
    """Pillow's two-pass resize, or torch's; the parameters are height, width and the filter's code."""


@dataclass(frozen=True, eq=False, kw_only=True)
class LutOp(Op):
    """Every uint8 output value depends on one input value of the same channel: a table of 256 entries per channel.

    Attributes:
        levels: the op by Pillow's own means on a picture (of all levels).
    """

    levels: Callable[[Image.Image, Params], Image.Image]


@dataclass(frozen=True, eq=False, kw_only=True)
class EffectOp(Op):
    """Output values depend on several input values: a backend has a kernel for each, or the host runs the reference.

    Attributes:
        kind: what an output pixel depends on: the same input pixel and a *statistic* of the whole image; a *mix* of the
            channels of the same input pixel, and nothing else; its *neighbourhood*; another place, rows and columns
            together (a *warp*); or what *torchvision* or Pillow alone knows.
    """

    kind: EffectKind


@dataclass(frozen=True, eq=False, kw_only=True)
class TensorOp(Op):
    """An op on values of any dtype.

    Attributes:
        apply: the op itself on a tensor [..., C, H, W].
        elementwise: it makes the same of an image alone and in a batch.
    """

    apply: Callable[..., torch.Tensor]
    elementwise: bool = True
    takes: Takes = "floats"


@dataclass(frozen=True, eq=False, kw_only=True)
class ValueOp(TensorOp):
    """Treats every value by itself: run on 0..255 it gives a table of values.

    Attributes:
        drawn: its parameters are drawn for every image. A table of float values, for one image alone, would be dear.
    """

    drawn: bool = False


class PatchOp(TensorOp):
    """Puts values given with the step in the place of a rectangle's."""


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelOp(TensorOp):
    """torchvision's own function on tensors, which is run on the values when they are there, wherever that is.

    After one, all that follows runs so, whatever its kind (``accel.runtime.torch_ops``).

    Attributes:
        memory: how its result lies in memory, whatever the input does: channel by channel, or pixel by pixel.
    """

    elementwise: bool = False
    memory: Literal["planar", "interleaved"] | None = None


def given_size(size: Size, params: Params) -> Size:
    """The size of what is made as large as its first two parameters say."""
    return params[0], params[1]
