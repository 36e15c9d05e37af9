"""Rows of the table: torchvision's functions on tensors, of v1 and of v2, which differ in their arithmetic.

Those that treat each value by itself are value ops: they become tables. The others are kernels: torchvision's own
function is run on the values, image by image, when these are there.
"""

from __future__ import annotations

from typing import Any

import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F2

from accel.ops.row import Kind, Op, Params, Size
from accel.system import counters
from accel.system.private_names import private

DTYPES = (torch.uint8, torch.float32, torch.float64)
"""The dtypes that kernels are recorded for; what torch makes of halves depends on how they lie in memory."""

F_t = private("torchvision.transforms._functional_tensor", "_compute_affine_output_size")
_geometry = private(
    "torchvision.transforms.v2.functional._geometry",
    "_compute_affine_output_size",
    "_compute_resized_output_size",
    "_get_inverse_affine_matrix",
    "_parse_pad_padding",
)


_PLANAR = {
    "v2.adjust_hue",
    "v2.permute_channels",
    "v2.jpeg",
    "v1.resize",
    *(
        f"v{version}.{name}"
        for version in (1, 2)
        for name in ("equalize", "gaussian_blur", "pad", "affine", "rotate", "perspective", "rgb_to_grayscale")
    ),
    "v1.elastic_transform",
    "v2.elastic",
}


def frozen(value: Any) -> Any:
    """A parameter as it is recorded: lists as tuples, which can be compared and hashed."""
    return tuple(map(frozen, value)) if isinstance(value, list) else value


def thawed(value: Any) -> Any:
    """A parameter as torchvision takes it."""
    return list(value) if isinstance(value, tuple) else value


def _row(
    version: int, name: str, params: tuple[str, ...], samples: tuple[Params, ...], kind: Kind = "kernel", **more: Any
) -> Op:
    module = F_t if version == 1 else F2

    def apply(values: Any, *given: Any) -> Any:
        return getattr(module, name)(values, *map(thawed, given))

    def reference(tensor: Any, given: Params) -> Any:
        return apply(tensor, *given)

    more = {
        "takes": "floats",
        "apply": apply,
        "reference": reference,
        "planar": f"v{version}.{name}" in _PLANAR,
        "interleaved": f"v{version}.{name}" == "v1.adjust_hue",
        **more,
    }
    return Op(f"v{version}.{name}", kind, params=params, samples=samples, **more)


# -- sizes --------------------------------------------------------------------------------------------------


def padded(size: Size, padding: Any) -> Size:
    left, right, top, bottom = _geometry._parse_pad_padding(thawed(padding))
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
    """See ``rotate_image`` of torchvision.transforms.v2.functional."""
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


def _elastic_v1(tensor: Any, params: Params) -> Any:
    """Take displacements of the image's size alone: v1 takes any that can be broadcast."""
    if params[0].shape[1:3] != tensor.shape[-2:]:
        raise ValueError("the displacement is not of the image's size")
    return F_t.elastic_transform(tensor, *map(thawed, params))


def _jpeg(values: torch.Tensor, quality: int) -> torch.Tensor:
    """On the host wherever the values are, as torchvision's function asks."""
    if values.device.type != "cpu":
        counters.fallback("jpeg of tensors was left to the host, which waits for what the device made until there")
    jpeg: torch.Tensor = F2.jpeg(values.cpu(), quality)
    return jpeg.to(values.device)


# -- the rows -------------------------------------------------------------------------------------------------

_FACTORS = ((0.0,), (0.37,), (1.0,), (1.73,))
_NEAREST, _BILINEAR = InterpolationMode.NEAREST, InterpolationMode.BILINEAR
_MATRIX = (0.97, 0.2, 3.5, -0.3, 1.1, -2.0)
_TILTED = (1.1, 0.1, -4.0, 0.05, 1.2, -3.0, 0.0018, 0.0031)
_CORNERS = ((0, 0), (47, 0), (47, 63), (0, 63)), ((3, 5), (44, 1), (40, 60), (2, 50))
_DISPLACEMENT = torch.linspace(-0.3, 0.2, 2 * 64 * 48).view(1, 64, 48, 2)
_FILL = (0.1, 0.9, 0.5)


def _of_both(version: int) -> tuple[Op, ...]:
    """The rows of the functions that have the same name and parameters in v1 and v2."""

    def row(name: str, params: tuple[str, ...], samples: tuple[Params, ...], **more: Any) -> Op:
        return _row(version, name, params, samples, **more)

    return (
        row("adjust_brightness", ("brightness_factor",), _FACTORS, kind="value"),
        # no table: torch takes powers of the last few values of a tensor in another way than those before
        row("adjust_gamma", ("gamma", "gain"), ((0.5, 1.0), (2.2, 1.0), (1.3, 1.7), (0, 1))),
        row("invert", (), ((),), kind="value"),
        row("posterize", ("bits",), ((1,), (3,), (8,)), kind="value", takes="pixels"),
        row("solarize", ("threshold",), ((0,), (0.43,)), kind="value"),
        *(row(f"adjust_{what}", (f"{what}_factor",), _FACTORS) for what in ("contrast", "saturation", "sharpness")),
        row("adjust_hue", ("hue_factor",), ((-0.5,), (-0.13,), (0.0,), (0.31,), (0.5,)), elementwise=True),
        row("autocontrast", (), ((),)),
        row("equalize", (), ((),), takes="pixels"),
        row("gaussian_blur", ("kernel_size", "sigma"), (((3, 3), (0.8, 0.8)), ((5, 9), (1.7, 0.4)))),
        row(
            "rgb_to_grayscale",
            ("num_output_channels",),
            ((1,), (3,)),
            channels=lambda channels, params: channels if version == 1 and params[0] == 3 else params[0],
            elementwise=True,
        ),
        row(
            "crop",
            ("top", "left", "height", "width"),
            ((0, 0, 1, 1), (3, 5, 20, 11), (-4, -7, 30, 25)),
            size=lambda size, params: (params[2], params[3]),
            elementwise=True,
        ),
        row(
            "pad",
            ("padding", "fill", "padding_mode"),
            (((1, 2, 3, 4), 0.7, "constant"), (5, 0, "edge"), ((2, 3), 0, "reflect"), ((4, 1, 2, 3), 0, "symmetric")),
            size=lambda size, params: padded(size, params[0]),
            elementwise=True,
        ),
    )


ROWS = (
    *_of_both(1),
    *_of_both(2),
    _row(2, "grayscale_to_rgb", (), ((),), channels=lambda channels, params: 3, elementwise=True),
    _row(2, "permute_channels", ("permutation",), (((2, 0, 1),), ((1, 0, 2),)), elementwise=True),
    _row(2, "jpeg", ("quality",), ((75,),), takes="pixels", apply=_jpeg),
    *(_row(version, name, (), ((),), elementwise=True) for version, name in ((1, "hflip"), (1, "vflip"))),
    *(_row(2, name, (), ((),), elementwise=True) for name in ("horizontal_flip", "vertical_flip")),
    _row(
        1,
        "resize",
        ("size", "interpolation", "antialias"),
        (((17, 23), "bilinear", True), ((90, 48), "bicubic", False), ((7, 9), "nearest", True)),
        size=lambda size, params: params[0],
    ),
    _row(
        2,
        "resize",
        ("size", "interpolation", "max_size", "antialias"),
        (((17, 23), _BILINEAR, None, True), ((90, 48), InterpolationMode.BICUBIC, None, False)),
        size=_resized,
    ),
    _row(
        1,
        "affine",
        ("matrix", "interpolation", "fill"),
        ((_MATRIX, "nearest", None), (_MATRIX, "bilinear", (0.5,)), (_MATRIX, "nearest", _FILL)),
    ),
    _row(
        2,
        "affine",
        ("angle", "translate", "scale", "shear", "interpolation", "fill", "center"),
        ((13.0, (3, -5), 1.2, (4.0, -9.0), _NEAREST, None, None), (-50, (0, 0), 0.8, (0, 9), _BILINEAR, _FILL, (9, 4))),
    ),
    _row(
        1,
        "rotate",
        ("matrix", "interpolation", "expand", "fill"),
        ((_MATRIX, "nearest", False, None), (_MATRIX, "bilinear", True, (0.5,))),
        size=_turned_v1,
    ),
    _row(
        2,
        "rotate",
        ("angle", "interpolation", "expand", "center", "fill"),
        ((13, _NEAREST, False, None, None), (90.0, _BILINEAR, True, None, 1), (-31.5, _BILINEAR, True, None, _FILL)),
        size=_turned_v2,
    ),
    _row(
        1,
        "perspective",
        ("perspective_coeffs", "interpolation", "fill"),
        ((_TILTED, "bilinear", None), (_TILTED, "nearest", _FILL)),
    ),
    _row(
        2,
        "perspective",
        ("startpoints", "endpoints", "interpolation", "fill", "coefficients"),
        ((*_CORNERS, _BILINEAR, None, None), (None, None, _NEAREST, _FILL, _TILTED)),
    ),
    _row(
        1,
        "elastic_transform",
        ("displacement", "interpolation", "fill"),
        ((_DISPLACEMENT, "bilinear", None), (_DISPLACEMENT, "nearest", (0.5,))),
        holds_tensors=True,
        reference=_elastic_v1,
    ),
    _row(
        2,
        "elastic",
        ("displacement", "interpolation", "fill"),
        ((_DISPLACEMENT, _BILINEAR, None), (_DISPLACEMENT, _NEAREST, _FILL)),
        holds_tensors=True,
    ),
)

V1 = tuple(row.name.removeprefix("v1.") for row in ROWS if row.name.startswith("v1."))
"""Functions of ``torchvision.transforms._functional_tensor`` with a row."""

private("torchvision.transforms._functional_tensor", *V1)
