"""Rows of the table: what moves pixels (crops, flips, pads, resizes), and what becomes of their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from PIL.Image import Resampling
from torchvision.transforms import InterpolationMode
from torchvision.transforms import _functional_pil as F_pil
from torchvision.transforms import _functional_tensor as F_t
from torchvision.transforms import functional as F
from torchvision.transforms.v2 import functional as F2

from accel import resample
from accel.index import Positions, nearest
from accel.ops.row import Axes, Op, Params, Size


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

ROWS = (
    Op(
        "convert",
        "mode",
        lambda image, params: image.convert(*params),
        ("mode",),
        (("RGB",),),
        channels=lambda channels, params: 3,
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
