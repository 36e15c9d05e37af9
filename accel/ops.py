"""THE TABLE: one row for every op that accel records.

A row states what the planner and the tests need to know; a backend adds one kernel per kind, not per op.
Four kinds:

- ``mode``: which channels the source is decoded to;
- ``index``: every output pixel is one input pixel or a fill colour, rows and columns apart (``accel.index``);
- ``resample``: Pillow's two-pass resize;
- ``value``: every output value depends on one input value of the same channel, so on uint8 pixels any
  sequence of them is a table of 256 entries per channel, made by running torchvision itself on 0..255.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from PIL.Image import Resampling
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F
from torchvision.transforms.v2 import functional as F2

from accel import resample
from accel.index import Index, Positions, nearest
from accel.seams import private

F_pil = private("torchvision.transforms._functional_pil", "crop", "hflip", "vflip", "pad", "resize")
F_t = private("torchvision.transforms._functional_tensor", "convert_image_dtype", "normalize")

Params = tuple[Any, ...]
Size = tuple[int, int]
Axes = tuple[Index, Index]
Takes = Literal["image", "pixels", "floats"]
Kind = Literal["mode", "index", "resample", "value"]


@dataclass(frozen=True)
class Op:
    """One row.

    Attributes:
        name: as torchvision's functional names it.
        kind: how the planner fuses it.
        reference: torchvision's (or Pillow's, or torch's) own function on an image or tensor, with a step's
            parameters: what the op equals, and on a late one, what records it.
        params: the names of a step's parameters, in order.
        samples: parameters to try it with.
        takes: what it acts on first: a Pillow image, a uint8 tensor, or a float one.
        size: output (height, width) from the input's and the parameters.
        lower: for an index op, the maps of rows and columns after it, from those before it, the parameters,
            and the code of the fill colour that ``fill`` names.
        fill: the colour it may bring in, one value per channel from (params, channels).
        apply: for a value op, the op itself on a tensor [C, H, W].
        tolerance: largest difference from the reference, in levels of uint8; 0 is bit-identical.
    """

    name: str
    kind: Kind
    reference: Callable[[Any, Params], Any]
    params: tuple[str, ...]
    samples: tuple[Params, ...]
    size: Callable[[Size, Params], Size] = lambda size, params: size
    lower: Callable[[Axes, Params, int], Axes] | None = None
    fill: Callable[[Params, int], tuple[int, ...]] | None = None
    takes: Takes = "image"
    apply: Callable[..., torch.Tensor] | None = None
    tolerance: int = 0


def _black(params: Params, channels: int) -> tuple[int, ...]:
    return (0,) * channels


def _lower_crop(axes: Axes, params: Params, code: int) -> Axes:
    top, left, height, width = params
    return axes[0].crop(top, height, code), axes[1].crop(left, width, code)


def _lower_pad(axes: Axes, params: Params, code: int) -> Axes:
    left, top, right, bottom, mode, _ = params
    return axes[0].pad(top, bottom, mode, code), axes[1].pad(left, right, mode, code)


def _lower_nearest(axes: Axes, params: Params, code: int) -> Axes:
    rows, columns = axes
    return rows.take(nearest(rows.length, params[0])), columns.take(nearest(columns.length, params[1]))


def _lower_torch_nearest(axes: Axes, params: Params, code: int) -> Axes:
    return _taken(axes, resample.nearest(axes[0].length, params[0]), resample.nearest(axes[1].length, params[1]))


def _lower_nearest_exact(axes: Axes, params: Params, code: int) -> Axes:
    height, width = params
    rows = resample.nearest_exact(axes[0].length, height, width)
    return _taken(axes, rows, resample.nearest_exact(axes[1].length, width, height))


def _taken(axes: Axes, rows: Positions, columns: Positions) -> Axes:
    return axes[0].take(rows), axes[1].take(columns)


def _given_size(size: Size, params: Params) -> Size:
    return params[0], params[1]


def _pad_size(size: Size, params: Params) -> Size:
    left, top, right, bottom = params[:4]
    return size[0] + top + bottom, size[1] + left + right


def _fill(image: Any, params: Params) -> Any:
    return (params[5] * 3)[: len(image.getbands())] if params[5] else 0


def _with_default_dtype(dtype: torch.dtype, function: Callable[[], Any]) -> Any:
    previous = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        return function()
    finally:
        torch.set_default_dtype(previous)


def _to_tensor(pixels: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return pixels.to(dtype).div(255)


def _convert_image_dtype(pixels: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return F_t.convert_image_dtype(pixels, dtype)  # type: ignore[no-any-return]


def _normalize(pixels: torch.Tensor, mean: Any, std: Any) -> torch.Tensor:
    return F_t.normalize(pixels, mean=mean, std=std)  # type: ignore[no-any-return]


def _cast(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return values.to(dtype)


_FILTERS = tuple(int(code) for code in sorted(Resampling) if code in (1, 2, 3, 4, 5))
_SIZES = ((17, 23), (64, 48), (1, 1), (300, 5))

_ROWS = (
    Op(
        "convert",
        "mode",
        lambda image, params: image.convert(*params),
        ("mode",),
        (("RGB",),),
    ),
    Op(
        "crop",
        "index",
        lambda image, params: F_pil.crop(image, *params),
        ("top", "left", "height", "width"),
        ((0, 0, 1, 1), (3, 5, 20, 11), (-4, -7, 30, 25), (10, 10, 500, 400), (900, 0, 8, 8)),
        size=lambda size, params: (params[2], params[3]),
        lower=_lower_crop,
        fill=_black,
    ),
    Op(
        "hflip",
        "index",
        lambda image, params: F_pil.hflip(image),
        (),
        ((),),
        lower=lambda axes, params, code: (axes[0], axes[1].flip()),
    ),
    Op(
        "vflip",
        "index",
        lambda image, params: F_pil.vflip(image),
        (),
        ((),),
        lower=lambda axes, params, code: (axes[0].flip(), axes[1]),
    ),
    Op(
        "pad",
        "index",
        lambda image, params: F_pil.pad(image, params[:4], _fill(image, params), params[4]),
        ("left", "top", "right", "bottom", "mode", "fill"),
        (
            (1, 2, 3, 4, "constant", (9, 200, 31)),
            (5, 5, 5, 5, "edge", None),
            (2, 3, 4, 1, "reflect", None),
            (4, 1, 2, 3, "symmetric", None),
        ),
        size=_pad_size,
        lower=_lower_pad,
        fill=lambda params, channels: (params[5] * channels)[:channels] if params[5] else (0,) * channels,
    ),
    Op(
        "resize_nearest",
        "index",
        lambda image, params: F_pil.resize(image, list(params[:2]), 0),
        ("height", "width"),
        _SIZES,
        size=_given_size,
        lower=_lower_nearest,
    ),
    Op(
        "resize",
        "resample",
        lambda image, params: F_pil.resize(image, list(params[:2]), params[2]),
        ("height", "width", "resample"),
        tuple((*size, code) for size in _SIZES for code in _FILTERS),
        size=_given_size,
    ),
    Op(
        "nearest",
        "index",
        lambda tensor, params: F2.resize(tensor, list(params), InterpolationMode.NEAREST),
        ("height", "width"),
        _SIZES,
        takes="pixels",
        size=_given_size,
        lower=_lower_torch_nearest,
    ),
    Op(
        "nearest_exact",
        "index",
        lambda tensor, params: F2.resize(tensor, list(params), InterpolationMode.NEAREST_EXACT),
        ("height", "width"),
        _SIZES,
        takes="pixels",
        size=_given_size,
        lower=_lower_nearest_exact,
    ),
    Op(
        "to_tensor",
        "value",
        lambda image, params: _with_default_dtype(params[0], lambda: F.to_tensor(image)),
        ("dtype",),
        ((torch.float32,), (torch.float64,)),
        apply=_to_tensor,
    ),
    Op(
        "pil_to_tensor",
        "value",
        lambda image, params: F.pil_to_tensor(image),
        (),
        ((),),
        apply=lambda pixels: pixels,
    ),
    Op(
        "convert_image_dtype",
        "value",
        lambda tensor, params: F.convert_image_dtype(tensor, *params),
        ("dtype",),
        ((torch.float32,), (torch.float16,), (torch.uint8,), (torch.int16,)),
        takes="floats",
        apply=_convert_image_dtype,
    ),
    Op(
        "to_dtype",
        "value",
        lambda tensor, params: F2.to_dtype(tensor, *params),
        ("dtype", "scale"),
        ((torch.float32, True), (torch.float32, False), (torch.float16, True), (torch.int32, True)),
        takes="pixels",
        apply=lambda values, dtype, scale: F2.to_dtype_image(values, dtype, scale),
    ),
    Op(
        "normalize",
        "value",
        lambda tensor, params: F.normalize(tensor, *params),
        ("mean", "std"),
        (((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), ((0.5,), (0.25,))),
        takes="floats",
        apply=_normalize,
    ),
    Op(
        "to",
        "value",
        lambda tensor, params: tensor.to(*params),
        ("dtype",),
        ((torch.float16,), (torch.bfloat16,), (torch.float64,)),
        takes="floats",
        apply=_cast,
    ),
)

OPS: dict[str, Op] = {row.name: row for row in _ROWS}
"""The rows by name."""
