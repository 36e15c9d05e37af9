"""Rows of the table: ops that move rows and columns together, and Pillow's nearest scaling, which does not."""

from __future__ import annotations

import math
from typing import Any

import torch
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F
from torchvision.transforms.v2 import functional as F2

from accel.ops import accept
from accel.ops.index import scaled
from accel.ops.row import Accept, Axes, EffectOp, IndexOp, Params, Subject, always, target_size
from accel.ops.tensors import PLANAR, tensor_row, thawed
from accel.system.private_names import private

F_t = private("torchvision.transforms._functional_tensor", "elastic_transform")


def _lower_scale(axes: Axes, params: Params, code: int) -> Axes:
    height, width, (x_scale, x_offset, y_scale, y_offset), _ = params
    rows = scaled(axes[0].length, height, y_scale, y_offset, code)
    return axes[0].take_or_fill(rows), axes[1].take_or_fill(scaled(axes[1].length, width, x_scale, x_offset, code))


def _scale(image: Any, params: Params) -> Any:
    height, width, (x_scale, x_offset, y_scale, y_offset), fill = params
    matrix = (x_scale, 0, x_offset, 0, y_scale, y_offset)
    return _transform(image, Image.Transform.AFFINE, height, width, matrix, 0, fill)


def _transform(
    image: Any, method: Any, height: int, width: int, matrix: Any, resample: int, fill: tuple[int, ...]
) -> Any:
    return image.transform((width, height), method, matrix, resample, fillcolor=(fill * 3)[: len(image.getbands())])


def _colour(params: Params, channels: int) -> tuple[int, ...]:
    fill: tuple[int, ...] = params[-1]
    return (fill * channels)[:channels]


def _turn(degrees: float, x: float, y: float) -> tuple[float, ...]:
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y


def _elastic(image: Any, params: Params) -> Any:
    displacement, interpolation, fill, version = params
    function = F.elastic_transform if version == 1 else F2.elastic
    return function(image, displacement, InterpolationMode(interpolation), fill)


def accepted_displacement(of: Subject, params: Params) -> Params | None:
    """Accept a displacement for each pixel, an interpolation, whose name is added, and a fill."""
    displacement, interpolation, fill = params
    mode = interpolation.value if isinstance(interpolation, InterpolationMode) else interpolation
    if not isinstance(displacement, torch.Tensor) or displacement.shape != (1, *of.shape[1:], 2):
        return None
    if not displacement.is_cpu or mode not in ("nearest", "bilinear") or not accept.is_fill(of, fill):
        return None
    if not displacement.sum().isfinite():
        raise accept.NotFinite("the displacement must be finite")
    return displacement.detach().clone(), interpolation, fill, mode


def _of_images(version: int) -> Accept:
    """Accept the arguments of v1's or v2's function for Pillow images, which converts these to tensors."""

    def accepted(of: Subject, params: Params) -> Params | None:
        found = accepted_displacement(of, params)
        if found is None or not accept.in_float32():
            return None
        displacement, _, fill, mode = found
        return displacement, mode, tuple(fill) if isinstance(fill, list) else fill, version

    return accepted


def _of_tensors(of: Subject, params: Params) -> Params | None:
    found = accepted_displacement(of, params)
    return None if found is None or params[0].requires_grad else found[:3]


def _elastic_v1(tensor: Any, params: Params) -> Any:
    """v1's function, but only for displacements of the image's size; v1 takes any that can be broadcast."""
    if params[0].shape[1:3] != tensor.shape[-2:]:
        raise ValueError("the displacement is not of the image's size")
    return F_t.elastic_transform(tensor, *map(thawed, params))


_FILL = (9, 200, 31)
_AFFINE = (_turn(13, 30, 20), _turn(-110, 40.5, 31.5), (1.0, 0.3, -2.0, 0.0, 1.0, 0.0), (0.5, 0, 3, 0, 2.1, -7))
_TILTED = ((1.1, 0.1, -4.0, 0.05, 1.2, -3.0, 0.0018, 0.0031), (1, 0, 0, 0, 1, 0, 0, 0), (1, 0, 0, 0, 1, 0, -0.02, 0))

_DISPLACEMENT = torch.linspace(-0.3, 0.2, 2 * 64 * 48).view(1, 64, 48, 2)
_GRIDS = (("bilinear", None), ("bilinear", (33,)), ("nearest", 7))
_VALUES = (("bilinear", None), ("nearest", (0.1, 0.9, 0.5)))

ROWS = (
    IndexOp(
        "scale_nearest",
        _scale,
        ("height", "width", "scale", "fill"),
        (
            (50, 40, (1.0, 5.0, 1.0, -7.0), _FILL),
            (30, 60, (-1.3, 70.0, 0.4, 2.2), _FILL),
            (9, 9, (1, 900, 1, 0), _FILL),
        ),
        size=target_size,
        lower=_lower_scale,
        fill=_colour,
    ),
    EffectOp(
        "affine",
        lambda image, params: _transform(image, Image.Transform.AFFINE, *params),
        ("height", "width", "matrix", "resample", "fill"),
        tuple((52, 61, matrix, code, _FILL) for matrix in _AFFINE for code in (0, 2, 3)[matrix[1] == 0 :]),
        size=target_size,
        kind="warp",
    ),
    EffectOp(
        "perspective",
        lambda image, params: _transform(image, Image.Transform.PERSPECTIVE, *params),
        ("height", "width", "coefficients", "resample", "fill"),
        tuple((52, 61, matrix, code, _FILL) for matrix in _TILTED for code in (0, 2, 3)),
        size=target_size,
        kind="warp",
    ),
    EffectOp(
        "transpose",
        lambda image, params: image.transpose(Image.Transpose.TRANSPOSE),
        size=lambda size, params: (size[1], size[0]),
        kind="warp",
    ),
    EffectOp(
        "elastic",
        _elastic,
        ("displacement", "interpolation", "fill", "version"),
        tuple((_DISPLACEMENT, mode, fill, version) for mode, fill in _GRIDS for version in (1, 2)),
        hooks={
            "torchvision.transforms.functional.elastic_transform": _of_images(1),
            "torchvision.transforms.v2.functional._geometry._elastic_image_pil": _of_images(2),
        },
        renews=always,
        holds_tensors=True,
        kind="warp",
    ),
    tensor_row(
        1,
        "elastic_transform",
        PLANAR,
        ((_DISPLACEMENT, "bilinear", None), (_DISPLACEMENT, "nearest", (0.5,))),
        _of_tensors,
        holds_tensors=True,
        reference=_elastic_v1,
    ),
    tensor_row(
        2,
        "elastic",
        PLANAR,
        tuple((_DISPLACEMENT, InterpolationMode(mode), fill) for mode, fill in _VALUES),
        _of_tensors,
        holds_tensors=True,
    ),
)
