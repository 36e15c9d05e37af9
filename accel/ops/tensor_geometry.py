"""Rows of the table: ops that move the pixels of tensors, by v1's and v2's functions of torchvision."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F2

from accel.ops.accept import FLOAT32, are_numbers, is_fill, is_listed, listed, sides
from accel.ops.row import KernelOp, Params, Size, Subject
from accel.ops.tensors import ELEMENTWISE, PLANAR, tensor_row, tensor_rows, thawed
from accel.system.private_names import private

F_t = private("torchvision.transforms._functional_tensor", "_compute_affine_output_size")
_geometry = private(
    "torchvision.transforms.v2.functional._geometry",
    "_affine_parse_args",
    "_check_interpolation",
    "_compute_affine_output_size",
    "_compute_resized_output_size",
    "_get_inverse_affine_matrix",
)


# -- sizes --------------------------------------------------------------------------------------------------


def _padded(size: Size, padding: Any) -> Size:
    edges = sides(padding)
    assert edges is not None
    left, top, right, bottom = edges
    return size[0] + top + bottom, size[1] + left + right


def _resized(size: Size, params: Params) -> Size:
    height, width = _geometry._compute_resized_output_size(size, size=thawed(params[0]), max_size=params[2])
    return height, width


def _turned_v1(size: Size, params: Params) -> Size:
    matrix, _, expand, _ = params
    if not expand:
        return size
    width, height = F_t._compute_affine_output_size(list(matrix), size[1], size[0])
    return height, width


def _turned_v2(size: Size, params: Params) -> Size:
    """The size after ``rotate_image`` of torchvision.transforms.v2.functional."""
    angle, _, expand, center, _ = params
    height, width = size
    angle = angle % 360
    if center is None and (angle in (0, 180) or (angle in (90, 270) and (expand or height == width))):
        return size if angle in (0, 180) else (width, height)
    if not expand:
        return size
    middle = [0.0, 0.0] if center is None else [c - s * 0.5 for c, s in zip(center, [width, height], strict=True)]
    matrix = _geometry._get_inverse_affine_matrix(middle, -angle, [0.0, 0.0], 1.0, [0.0, 0.0])
    width, height = _geometry._compute_affine_output_size(matrix, width, height)
    return height, width


# -- checks of arguments -------------------------------------------------------------------------------------


def _place(of: Subject, params: Params) -> Params | None:
    """Accept a crop that does not end before the image begins (torchvision makes something else of such crops)."""
    if not all(type(value) is int for value in params):
        return None
    top, left, height, width = params
    return params if height > 0 < width and top + height >= 0 <= left + width else None


def _padding(of: Subject, params: Params) -> Params | None:
    padding, fill, mode = params
    edges, fills = sides(padding), listed(fill)
    if edges is None or min(edges) < 0:
        return None
    channels, *size = of.shape
    if mode != "constant":
        largest = {"edge": max(edges), "reflect": min(size) - 1, "symmetric": min(size)}.get(mode, -1)
        return (padding, 0, mode) if fill in (0, None, [0], [0.0]) and max(edges) <= largest else None
    if len(fills) not in (1, channels) or not are_numbers(fills, "fill"):
        return None
    least, most = (0, 255) if of.dtype == torch.uint8 else (-FLOAT32, FLOAT32)
    if not all(least <= value <= most for value in fills):
        return None
    return padding, fills[0] if len(fills) == 1 else fills, mode


def _size(of: Subject, params: Params) -> Params | None:
    size, mode, _ = params
    sides = isinstance(size, (list, tuple)) and len(size) == 2 and all(type(n) is int and n > 0 for n in size)
    return params if sides and mode in ("nearest", "nearest-exact", "bilinear", "bicubic") else None


def _any_size(of: Subject, params: Params) -> Params | None:
    size, interpolation, max_size, antialias = params
    mode = _geometry._check_interpolation(interpolation)
    height, width = _geometry._compute_resized_output_size(of.shape[1:], size=size, max_size=max_size)
    if min(height, width) < 1 or (of.dtype == torch.uint8 and min(height, width) == 1):
        return None  # torch 2.15 refuses some uint8 images that are so small
    return (size, mode, max_size, antialias) if _resizes(mode, bool(antialias), of.dtype) else None


@cache
def _resizes(mode: InterpolationMode, antialias: bool, dtype: torch.dtype) -> bool:
    """Whether the installed torch can resize tensors in this way."""
    try:
        F2.resize(torch.zeros((3, 5, 5), dtype=dtype, device="cpu"), [3, 4], mode, antialias=antialias)
    except Exception:
        return False
    return True


def _matrix(of: Subject, params: Params) -> Params | None:
    """Accept the matrix of v1's ``affine``, ``rotate`` or ``perspective``."""
    matrix, mode, *_, fill = params
    whole = isinstance(matrix, list) and is_listed(matrix, "the matrix", 6, 8)
    return params if whole and mode in ("nearest", "bilinear") and is_fill(of, fill) else None


def _affine(of: Subject, params: Params) -> Params | None:
    angle, translate, scale, shear, interpolation, fill, center = params
    mode = _geometry._check_interpolation(interpolation)
    parsed = _geometry._affine_parse_args(angle, translate, scale, shear, mode, center)
    every = [angle, *translate, scale, *parsed[2], *(center or ())]
    if not are_numbers(every, "the parameters of affine") or mode not in (_NEAREST, _BILINEAR) or not is_fill(of, fill):
        return None
    return (angle, translate, scale, parsed[2], mode, fill, center) if len(center or (0, 0)) == 2 else None


def _rotate(of: Subject, params: Params) -> Params | None:
    angle, interpolation, expand, center, fill = params
    mode = _geometry._check_interpolation(interpolation)
    placed = center is None or is_listed(center, "center", 2)
    if not placed or not are_numbers([angle], "angle") or mode not in (_NEAREST, _BILINEAR) or not is_fill(of, fill):
        return None
    return angle, mode, bool(expand), center, fill


def _perspective(of: Subject, params: Params) -> Params | None:
    start, end, interpolation, fill, coefficients = params
    mode = _geometry._check_interpolation(interpolation)
    if coefficients is not None:
        known = start is None is end and is_listed(coefficients, "coefficients", 8)
    else:
        known = all(isinstance(points, (list, tuple)) and len(points) == 4 for points in (start, end))
        known = known and all(is_listed(point, "a corner", 2) for point in (*start, *end))
    known = known and mode in (_NEAREST, _BILINEAR) and is_fill(of, fill)
    return (start, end, mode, fill, coefficients) if known else None


# -- the rows -------------------------------------------------------------------------------------------------

_NEAREST, _BILINEAR = InterpolationMode.NEAREST, InterpolationMode.BILINEAR
_MATRIX = (0.97, 0.2, 3.5, -0.3, 1.1, -2.0)
_TILTED = (1.1, 0.1, -4.0, 0.05, 1.2, -3.0, 0.0018, 0.0031)
_CORNERS = ((0, 0), (47, 0), (47, 63), (0, 63)), ((3, 5), (44, 1), (40, 60), (2, 50))
_FILL = (0.1, 0.9, 0.5)
_SIZES_V1 = ((17, 23), "bilinear", True), ((90, 48), "bicubic", False), ((7, 9), "nearest", True)
_SIZES_V2 = ((17, 23), _BILINEAR, None, True), ((90, 48), InterpolationMode.BICUBIC, None, False)


def _by_matrix(*samples: Params) -> dict[str, Any]:
    """The attributes of the row for v1's function, which takes a matrix."""
    return {"samples": samples, "accept": _matrix}


ROWS = (
    *(tensor_row(1, name, ELEMENTWISE) for name in ("hflip", "vflip")),
    *(tensor_row(2, name, ELEMENTWISE) for name in ("horizontal_flip", "vertical_flip")),
    *tensor_rows(
        "crop",
        ELEMENTWISE,
        ((0, 0, 1, 1), (3, 5, 20, 11), (-4, -7, 30, 25)),
        _place,
        size=lambda size, params: (params[2], params[3]),
    ),
    *tensor_rows(
        "pad",
        partial(PLANAR, elementwise=True),
        (((1, 2, 3, 4), 0.7, "constant"), (5, 0, "edge"), ((2, 3), 0, "reflect"), ((4, 1, 2, 3), 0, "symmetric")),
        _padding,
        v1={"accept": lambda of, params: None if isinstance(params[1], (list, tuple)) else _padding(of, params)},
        size=lambda size, params: _padded(size, params[0]),
    ),
    tensor_row(1, "resize", PLANAR, _SIZES_V1, _size, size=lambda size, params: params[0]),
    tensor_row(2, "resize", KernelOp, _SIZES_V2, _any_size, size=_resized),
    *tensor_rows(
        "affine",
        PLANAR,
        ((13.0, (3, -5), 1.2, (4.0, -9.0), _NEAREST, None, None), (-50, (0, 0), 0.8, (0, 9), _BILINEAR, _FILL, (9, 4))),
        _affine,
        v1=_by_matrix((_MATRIX, "nearest", None), (_MATRIX, "bilinear", (0.5,)), (_MATRIX, "nearest", _FILL)),
    ),
    *tensor_rows(
        "rotate",
        PLANAR,
        ((13, _NEAREST, False, None, None), (90.0, _BILINEAR, True, None, 1), (-31.5, _BILINEAR, True, None, _FILL)),
        _rotate,
        size=_turned_v2,
        v1={**_by_matrix((_MATRIX, "nearest", False, None), (_MATRIX, "bilinear", True, (0.5,))), "size": _turned_v1},
    ),
    *tensor_rows(
        "perspective",
        PLANAR,
        ((*_CORNERS, _BILINEAR, None, None), (None, None, _NEAREST, _FILL, _TILTED)),
        _perspective,
        v1=_by_matrix((_TILTED, "bilinear", None), (_TILTED, "nearest", _FILL)),
    ),
)
