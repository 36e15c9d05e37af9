"""Rows of the table: colour ops on Pillow images, as torchvision has Pillow run them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PIL import Image, ImageEnhance, ImageOps
from torchvision.transforms import _functional_pil as F_pil

from accel.ops.row import Kind, Op, Params


def _brightness(picture: Image.Image, params: Params) -> Image.Image:
    return ImageEnhance.Brightness(picture).enhance(*params)


def _gamma(picture: Image.Image, params: Params) -> Image.Image:
    gamma, gain = params
    table = [int((255 + 1 - 1e-3) * gain * pow(level / 255.0, gamma)) for level in range(256)]
    return picture.point(table * len(picture.getbands()))


def _levels_row(
    name: str,
    params: tuple[str, ...],
    samples: tuple[Params, ...],
    levels: Callable[[Image.Image, Params], Image.Image],
) -> Op:
    return Op(name, "levels", _by_torchvision(name), params, samples, levels=levels)


def _effect(name: str, kind: Kind, params: tuple[str, ...], samples: tuple[Params, ...], **more: Any) -> Op:
    return Op(name, kind, _by_torchvision(name), params, samples, **more)


def _by_torchvision(name: str) -> Callable[[Any, Params], Any]:
    return lambda image, params: getattr(F_pil, name)(image, *params)


_FACTORS = ((0.0,), (0.37,), (1.0,), (1.73,))

ROWS = (
    _levels_row("adjust_brightness", ("brightness_factor",), (*_FACTORS, (-0.4,)), _brightness),
    _levels_row("adjust_gamma", ("gamma", "gain"), ((0.5, 1.0), (2.2, 1.0), (1.3, 1.7), (0, 1)), _gamma),
    _levels_row("invert", (), ((),), lambda picture, params: ImageOps.invert(picture)),
    _levels_row(
        "posterize", ("bits",), ((1,), (3,), (8,)), lambda picture, params: ImageOps.posterize(picture, *params)
    ),
    _levels_row(
        "solarize",
        ("threshold",),
        ((0,), (100.5,), (256,)),
        lambda picture, params: ImageOps.solarize(picture, *params),
    ),
    _effect("adjust_contrast", "statistic", ("contrast_factor",), _FACTORS),
    _effect("autocontrast", "statistic", (), ((),)),
    _effect("equalize", "statistic", (), ((),)),
    _effect("adjust_saturation", "mix", ("saturation_factor",), _FACTORS),
    _effect("adjust_hue", "mix", ("hue_factor",), ((-0.5,), (-0.13,), (0.0,), (0.31,), (0.5,))),
    _effect("to_grayscale", "mix", ("num_output_channels",), ((1,), (3,)), channels=lambda channels, params: params[0]),
    _effect("adjust_sharpness", "neighbourhood", ("sharpness_factor",), _FACTORS),
)
