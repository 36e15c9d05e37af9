"""A row of the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from PIL import Image

from accel.ops.index import Index

Params = tuple[Any, ...]
Size = tuple[int, int]
Axes = tuple[Index, Index]
Takes = Literal["image", "pixels", "floats"]
Kind = Literal[
    "mode",
    "index",
    "resample",
    "levels",
    "statistic",
    "mix",
    "neighbourhood",
    "warp",
    "torchvision",
    "value",
    "patch",
    "kernel",
]


@dataclass(frozen=True)
class Op:
    """One row.

    Attributes:
        name: as torchvision's functional names it.
        kind: how the planner fuses it; see ``accel.ops``.
        reference: torchvision's (or Pillow's, or torch's) own function on an image or tensor, with a step's
            parameters: what the op equals, and on a lazy one, what records it.
        params: the names of a step's parameters, in order.
        samples: parameters to try it with.
        takes: what it acts on first: a Pillow image, a uint8 tensor, or a float one.
        size: output (height, width) from the input's and the parameters.
        channels: channels of the output from the input's and the parameters.
        lower: for an index op, the maps of rows and columns after it, from those before it, the parameters,
            and the code of the fill colour that ``fill`` names.
        fill: the colour it may bring in, one value per channel from (params, channels).
        fills: whether that colour shows, from the input's size and the parameters.
        levels: for an op on levels, the op by Pillow's own means on a picture (of all levels).
        apply: for a value op or a kernel, the op itself on a tensor [..., C, H, W].
        elementwise: for a kernel, whether it makes the same of an image alone and in a batch.
        planar: for a kernel, whether its result lies in memory channel by channel, whatever the input does.
        interleaved: the same of pixel by pixel.
        holds_tensors: its parameters have a tensor among them, too large to be remembered with a plan.
    """

    name: str
    kind: Kind
    reference: Callable[[Any, Params], Any]
    params: tuple[str, ...]
    samples: tuple[Params, ...]
    size: Callable[[Size, Params], Size] = lambda size, params: size
    channels: Callable[[int, Params], int] = lambda channels, params: channels
    lower: Callable[[Axes, Params, int], Axes] | None = None
    fill: Callable[[Params, int], tuple[int, ...]] | None = None
    fills: Callable[[Size, Params], bool] = lambda size, params: True
    levels: Callable[[Image.Image, Params], Image.Image] | None = None
    takes: Takes = "image"
    apply: Callable[..., torch.Tensor] | None = None
    elementwise: bool = False
    planar: bool = False
    interleaved: bool = False
    holds_tensors: bool = False


def given_size(size: Size, params: Params) -> Size:
    """The size of what is made as large as its first two parameters say."""
    return params[0], params[1]
