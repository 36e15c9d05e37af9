"""Rows of the table: colour ops on Pillow images, as torchvision has Pillow run them."""

from __future__ import annotations

from typing import Any

import torch
from PIL import Image, ImageEnhance, ImageOps
from torchvision.transforms import functional as F
from torchvision.transforms.v2 import functional as F2

from accel.ops.row import Kind, Op, Params
from accel.system.private_names import private


def _gamma(picture: Image.Image, params: Params) -> Image.Image:
    gamma, gain = params
    table = [int((255 + 1 - 1e-3) * gain * pow(level / 255.0, gamma)) for level in range(256)]
    return picture.point(table * len(picture.getbands()))


def _row(name: str, kind: Kind, params: tuple[str, ...], samples: tuple[Params, ...], **more: Any) -> Op:
    """The row of a function of torchvision's."""
    F_pil = private("torchvision.transforms._functional_pil", name)
    return Op(name, kind, lambda image, given: getattr(F_pil, name)(image, *given), params, samples, **more)


_FACTORS = ((0.0,), (0.37,), (1.0,), (1.73,))

FUNCTIONS = (
    _row(
        "adjust_brightness",
        "levels",
        ("brightness_factor",),
        (*_FACTORS, (-0.4,)),
        levels=lambda picture, params: ImageEnhance.Brightness(picture).enhance(*params),
    ),
    _row("adjust_gamma", "levels", ("gamma", "gain"), ((0.5, 1.0), (2.2, 1.0), (1.3, 1.7), (0, 1)), levels=_gamma),
    _row("invert", "levels", (), ((),), levels=lambda picture, params: ImageOps.invert(picture)),
    _row(
        "posterize",
        "levels",
        ("bits",),
        ((1,), (3,), (8,)),
        levels=lambda picture, params: ImageOps.posterize(picture, *params),
    ),
    _row(
        "solarize",
        "levels",
        ("threshold",),
        ((0,), (100.5,), (256,)),
        levels=lambda picture, params: ImageOps.solarize(picture, *params),
    ),
    _row("adjust_contrast", "statistic", ("contrast_factor",), _FACTORS),
    _row("autocontrast", "statistic", (), ((),)),
    _row("equalize", "statistic", (), ((),)),
    _row("adjust_saturation", "mix", ("saturation_factor",), _FACTORS),
    _row("adjust_hue", "mix", ("hue_factor",), ((-0.5,), (-0.13,), (0.0,), (0.31,), (0.5,))),
    _row("to_grayscale", "mix", ("num_output_channels",), ((1,), (3,)), channels=lambda channels, params: params[0]),
    _row("adjust_sharpness", "neighbourhood", ("sharpness_factor",), _FACTORS),
)
"""The rows of functions of ``torchvision.transforms._functional_pil``."""

ROWS = (
    *FUNCTIONS,
    Op(
        "point",
        "levels",
        lambda image, params: image.point(list(params[0] * 3)[: 256 * len(image.getbands())]),
        ("levels",),
        ((bytes(level * 7 % 256 for level in range(768)),),),
        levels=lambda picture, params: picture.point(list(params[0] * 3)[: 256 * len(picture.getbands())]),
    ),
    Op(
        "permute_channels",
        "mix",
        lambda image, params: F2.permute_channels(image, list(params[0])),
        ("permutation",),
        (((2, 0, 1),), ((1, 0, 2),)),
    ),
    Op(
        "gaussian_blur",
        "neighbourhood",
        lambda image, params: (F, F2)[params[4] - 1].gaussian_blur(image, list(params[:2]), list(params[2:4])),
        ("kernel_x", "kernel_y", "sigma_x", "sigma_y", "version"),
        ((3, 3, 0.8, 0.8, 1), (5, 9, 1.7, 0.4, 1), (1, 3, 2.0, 9.0, 2), (9, 7, 2.5, 1.3, 2)),
    ),
    Op(
        "jpeg",
        "torchvision",
        lambda image, params: F2.jpeg(image, *params),
        ("quality",),
        ((75,),),
    ),
    Op(
        "erase_image",
        "torchvision",
        lambda image, params: F2.erase(image, *params),
        ("top", "left", "height", "width", "value"),
        ((0, 0, 1, 1, torch.tensor([[[77]]], dtype=torch.uint8)),),
        holds_tensors=True,
    ),
)
