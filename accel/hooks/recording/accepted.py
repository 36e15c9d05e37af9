"""Arguments with which calls of torchvision's functions on tensors are recorded: those that cannot fail when run.

All others run at once, on the values, and raise what torchvision raises. NaN and infinity, for which the results are
undefined, are refused here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from operator import index
from typing import Any

import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

from accel.hooks.recording.images import blurred
from accel.lazy.state import LazyState
from accel.ops.row import Params
from accel.ops.tensor_kernels import padded
from accel.system.private_names import private

Accept = Callable[[LazyState, Params], Params | None]
"""The parameters to record, from those given; None for what torchvision decides."""

_geometry = private(
    "torchvision.transforms.v2.functional._geometry",
    "_affine_parse_args",
    "_check_interpolation",
    "_compute_resized_output_size",
)


class NotFinite(ValueError):
    """A parameter is NaN or infinite."""


def plain(*numbers: Any) -> tuple[int, ...] | None:
    """Whole numbers of any kind (NumPy's, ...) as ints, which steps have; None if others are among them."""
    try:
        return tuple(map(index, numbers))
    except TypeError:
        return None


def are_numbers(values: Any, name: str) -> bool:
    """Whether these are numbers; all of them are finite then.

    Raises:
        NotFinite: one is not.
    """
    if not all(isinstance(value, (int, float)) for value in values):
        return False
    for value in values:
        if not math.isfinite(value):
            raise NotFinite(f"{name} must be finite, got {value}")
    return True


def _listed(value: Any, name: str, *lengths: int) -> bool:
    return isinstance(value, (list, tuple)) and len(value) in lengths and are_numbers(value, name)


def _within(name: str, least: float, most: float = math.inf) -> Accept:
    """Accept numbers of which the first is one of these."""
    return lambda lazy, params: params if are_numbers(params, name) and least <= params[0] <= most else None


def bits(_: Any, params: Params) -> Params | None:
    """Accept those of ``posterize``."""
    return params if type(params[0]) is int and 0 <= params[0] <= 8 else None


def _threshold(lazy: LazyState, params: Params) -> Params | None:
    largest = 1 if lazy.dtype.is_floating_point else 255
    return params if are_numbers(params, "threshold") and params[0] <= largest else None


def _as_given(lazy: LazyState, params: Params) -> Params | None:
    return params


def _uint8(lazy: LazyState, params: Params) -> Params | None:
    return params if lazy.dtype == torch.uint8 else None


def channels(_: Any, params: Params) -> Params | None:
    """Accept the number of channels that grey is to have."""
    return params if params[0] in (1, 3) else None


def _permutation(lazy: LazyState, params: Params) -> Params | None:
    order = tuple(map(int, params[0]))
    return (order,) if sorted(order) == list(range(lazy.shape[0])) else None


def _blur(lazy: LazyState, params: Params) -> Params | None:
    kernel_size, sigma = params
    try:
        found = blurred(kernel_size, sigma, (lazy.shape[2], lazy.shape[1]))
    except ValueError as error:
        raise NotFinite(*error.args) from error
    return None if found is None else (found[:2], found[2:])


def _quality(lazy: LazyState, params: Params) -> Params | None:
    return _uint8(lazy, params) if type(params[0]) is int and 1 <= params[0] <= 100 else None


def _place(lazy: LazyState, params: Params) -> Params | None:
    """A crop of any place that does not end before the image begins (of others torchvision makes something else)."""
    if not all(type(value) is int for value in params):
        return None
    top, left, height, width = params
    return params if height > 0 < width and top + height >= 0 <= left + width else None


def _padding(lazy: LazyState, params: Params) -> Params | None:
    padding, fill, mode = params
    sides = [padding] if isinstance(padding, int) else padding
    if not isinstance(sides, (list, tuple)) or len(sides) not in (1, 2, 4):
        return None
    if not all(type(side) is int and side >= 0 for side in sides):
        return None
    channels, *size = lazy.shape
    if mode != "constant":
        rows, columns = padded((0, 0), padding)
        largest = {"edge": rows + columns, "reflect": min(size) - 1, "symmetric": min(size)}.get(mode, -1)
        return (padding, 0, mode) if fill in (0, None, [0], [0.0]) and max(sides) <= largest else None
    fills = [0 if fill is None else fill] if not isinstance(fill, (list, tuple)) else fill
    if len(fills) not in (1, channels) or not are_numbers(fills, "fill"):
        return None
    if lazy.dtype == torch.uint8 and not all(0 <= value <= 255 for value in fills):
        return None
    return padding, fills[0] if len(fills) == 1 else fills, mode


def _size(lazy: LazyState, params: Params) -> Params | None:
    size, mode, _ = params
    sides = isinstance(size, (list, tuple)) and len(size) == 2 and all(type(n) is int and n > 0 for n in size)
    return params if sides and mode in ("nearest", "nearest-exact", "bilinear", "bicubic") else None


def _any_size(lazy: LazyState, params: Params) -> Params | None:
    size, interpolation, max_size, antialias = params
    mode = _geometry._check_interpolation(interpolation)
    height, width = _geometry._compute_resized_output_size(lazy.shape[1:], size=size, max_size=max_size)
    if min(height, width) < 1 or (lazy.dtype == torch.uint8 and min(height, width) == 1):
        return None  # torch 2.15 refuses some uint8 images as small as that
    return (size, mode, max_size, antialias) if _resizes(mode, bool(antialias), lazy.dtype) else None


@cache
def _resizes(mode: InterpolationMode, antialias: bool, dtype: torch.dtype) -> bool:
    """Whether the installed torch resizes tensors so."""
    try:
        F.resize(torch.zeros((3, 5, 5), dtype=dtype, device="cpu"), [3, 4], mode, antialias=antialias)
    except Exception:
        return False
    return True


def _fill(lazy: LazyState, fill: Any) -> bool:
    if fill is None:
        return True
    several = isinstance(fill, (list, tuple))
    return _listed(fill, "fill", 1, lazy.shape[0]) if several else are_numbers([fill], "fill")


def _matrix(lazy: LazyState, params: Params) -> Params | None:
    """Accept the matrix of v1's ``affine``, ``rotate`` or ``perspective``."""
    matrix, mode, *_, fill = params
    whole = isinstance(matrix, list) and _listed(matrix, "the matrix", 6, 8)
    return params if whole and mode in ("nearest", "bilinear") and _fill(lazy, fill) else None


_MODES = (InterpolationMode.NEAREST, InterpolationMode.BILINEAR)


def _affine(lazy: LazyState, params: Params) -> Params | None:
    angle, translate, scale, shear, interpolation, fill, center = params
    mode = _geometry._check_interpolation(interpolation)
    parsed = _geometry._affine_parse_args(angle, translate, scale, shear, mode, center)
    every = [angle, *translate, scale, *parsed[2], *(center or ())]
    if not are_numbers(every, "the parameters of affine") or mode not in _MODES or not _fill(lazy, fill):
        return None
    return (angle, translate, scale, parsed[2], mode, fill, center) if len(center or (0, 0)) == 2 else None


def _rotate(lazy: LazyState, params: Params) -> Params | None:
    angle, interpolation, expand, center, fill = params
    mode = _geometry._check_interpolation(interpolation)
    placed = center is None or _listed(center, "center", 2)
    if not placed or not are_numbers([angle], "angle") or mode not in _MODES or not _fill(lazy, fill):
        return None
    return angle, mode, bool(expand), center, fill


def _perspective(lazy: LazyState, params: Params) -> Params | None:
    start, end, interpolation, fill, coefficients = params
    mode = _geometry._check_interpolation(interpolation)
    if coefficients is not None:
        known = start is None is end and _listed(coefficients, "coefficients", 8)
    else:
        known = all(isinstance(points, (list, tuple)) and len(points) == 4 for points in (start, end))
        known = known and all(_listed(point, "a corner", 2) for point in (*start, *end))
    return (start, end, mode, fill, coefficients) if known and mode in _MODES and _fill(lazy, fill) else None


def _displacement(lazy: LazyState, params: Params) -> Params | None:
    displacement, interpolation, fill = params
    if not isinstance(displacement, torch.Tensor) or displacement.shape != (1, *lazy.shape[1:], 2):
        return None
    if not displacement.is_cpu or displacement.requires_grad or not _fill(lazy, fill):
        return None
    mode = interpolation.value if isinstance(interpolation, InterpolationMode) else interpolation
    if mode not in ("nearest", "bilinear"):
        return None
    if not displacement.sum().isfinite():
        raise NotFinite("the displacement must be finite")
    return displacement.clone(), interpolation, fill


_SHARED: dict[str, Accept] = {
    **{f"adjust_{what}": _within("a factor", 0) for what in ("brightness", "contrast", "saturation", "sharpness")},
    "adjust_gamma": _within("gamma and gain", 0),
    "adjust_hue": _within("hue_factor", -0.5, 0.5),
    "invert": _as_given,
    "autocontrast": _as_given,
    "solarize": _threshold,
    "gaussian_blur": _blur,
    "rgb_to_grayscale": channels,
    "crop": _place,
}

ACCEPTED: dict[str, Accept] = {
    **{f"v{version}.{name}": accept for version in (1, 2) for name, accept in _SHARED.items()},
    "v1.posterize": lambda lazy, params: _uint8(lazy, params) and bits(lazy, params),
    "v2.posterize": bits,
    "v1.equalize": _uint8,
    "v2.equalize": _as_given,
    "v2.grayscale_to_rgb": _as_given,
    "v2.permute_channels": _permutation,
    "v2.jpeg": _quality,
    "v1.hflip": _as_given,
    "v1.vflip": _as_given,
    "v2.horizontal_flip": _as_given,
    "v2.vertical_flip": _as_given,
    "v1.pad": lambda lazy, params: None if isinstance(params[1], (list, tuple)) else _padding(lazy, params),
    "v2.pad": _padding,
    "v1.resize": _size,
    "v2.resize": _any_size,
    "v1.affine": _matrix,
    "v1.rotate": _matrix,
    "v1.perspective": _matrix,
    "v2.affine": _affine,
    "v2.rotate": _rotate,
    "v2.perspective": _perspective,
    "v1.elastic_transform": _displacement,
    "v2.elastic": _displacement,
}
