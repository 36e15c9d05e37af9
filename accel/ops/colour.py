"""Rows of the table: colour ops on Pillow images, as torchvision runs them by Pillow, and on tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from PIL import Image
from torchvision.transforms.v2 import functional as F2

from accel.ops import accept
from accel.ops.accept import unchanged
from accel.ops.hue import adjust_hue
from accel.ops.row import Accept, EffectOp, KernelOp, LutOp, Op, Params, Picture, Subject, TensorOp, ValueOp, always
from accel.ops.tensors import ELEMENTWISE, PLANAR, names, tensor_row, tensor_rows
from accel.system.private_names import private

_V1 = "torchvision.transforms._functional_pil"
private(_V1, "to_grayscale")


def _everywhere(
    name: str,
    on_images: Callable[..., Op],
    on_tensors: Callable[..., TensorOp],
    samples: tuple[Params, ...] = ((),),
    accept: Accept = unchanged,
    *,
    tensor_samples: tuple[Params, ...] | None = None,
    v1: Mapping[str, Any] = MappingProxyType({}),
    v2: Mapping[str, Any] = MappingProxyType({}),
    hooks: dict[str, Accept] | None = None,
    **more: Any,
) -> tuple[Op, ...]:
    """The rows of a function that torchvision has for Pillow images, and v1 and v2 have for tensors.

    ``on_images`` and ``on_tensors`` are the rows' classes with their special attributes; ``hooks`` are other functions
    that record it on images, ``more`` further attributes of all rows.
    """
    module = private(_V1, name)
    image = on_images(
        name,
        lambda image, params: getattr(module, name)(image, *params),
        names(module, name),
        samples,
        hooks={f"{_V1}.{name}": accept, **(hooks or {})},
        **more,
    )
    return image, *tensor_rows(name, on_tensors, tensor_samples or samples, accept, v1=v1, v2=v2, **more)


def _lut(name: str, *args: Any, **more: Any) -> LutOp:
    """A row whose lookup table is made by torchvision's own, unhooked function on Pillow images."""

    def levels(picture: Image.Image, params: Params) -> Any:
        function = getattr(private(_V1), name)
        return getattr(function, "__wrapped__", function)(picture, *params)

    return LutOp(name, *args, levels=levels, **more)


def _hue(of: Subject, params: Params) -> Params | None:
    """Accept a hue factor in range, but not on a grey image, which torchvision returns as it is."""
    grey = isinstance(of, Picture) and of.shape[0] == 1
    return None if grey else accept.numbers("hue_factor", -0.5, 0.5)(of, params)


def _brightness(of: Subject, params: Params) -> Params | None:
    """Accept a factor, but of uint8 tensors no whole number, by which v2 multiplies in uint8: values wrap around."""
    wraps = not isinstance(of, Picture) and of.dtype == torch.uint8 and not isinstance(params[0], float)
    return None if wraps else accept.factor(of, params)


def permuted(of: Subject, params: Params) -> Params | None:
    """Accept a permutation of red, green and blue."""
    return accept.permutation(of, params) if of.shape[0] == 3 else None


def _is_grey(channels: int, params: Params) -> bool:
    return channels == 1


def _pointed(picture: Image.Image, params: Params) -> Image.Image:
    return picture.point(list(params[0] * 3)[: 256 * len(picture.getbands())])


_FACTORS = ((0.0,), (0.37,), (1.0,), (1.73,))
_PERMUTATIONS = (((2, 0, 1),), ((1, 0, 2),))
_STATISTIC = partial(EffectOp, kind="statistic")
_MIX = partial(EffectOp, kind="mix")
_DRAWN = partial(ValueOp, drawn=True)

ROWS = (
    *_everywhere(
        "adjust_brightness",
        partial(_lut, renews=always),
        _DRAWN,
        (*_FACTORS, (-0.4,)),
        _brightness,
        tensor_samples=_FACTORS,
    ),
    *_everywhere(
        "adjust_gamma",
        _lut,
        KernelOp,  # no table: torch computes powers of the last few values of a tensor in another way than the rest
        ((0.5, 1.0), (2.2, 1.0), (1.3, 1.7), (0, 1)),
        accept.numbers("gamma and gain", 0),
    ),
    *_everywhere("invert", _lut, ValueOp),
    *_everywhere(
        "posterize",
        _lut,
        partial(_DRAWN, takes="pixels"),
        ((1,), (3,), (8,)),
        accept.bits,
        v1={"accept": accept.of_uint8(accept.bits)},
    ),
    *_everywhere(
        "solarize",
        _lut,
        _DRAWN,
        ((0,), (100.5,), (256,)),
        accept.threshold,
        tensor_samples=((0,), (0.43,)),
        hooks={"PIL.ImageOps.solarize": accept.threshold},
    ),
    *_everywhere("adjust_contrast", partial(_STATISTIC, renews=always), KernelOp, _FACTORS, accept.factor),
    *_everywhere(
        "autocontrast", _STATISTIC, KernelOp, hooks={"PIL.ImageOps.autocontrast": accept.only(0, None, None, False)}
    ),
    *_everywhere(
        "equalize",
        _STATISTIC,
        partial(PLANAR, takes="pixels"),
        v1={"accept": accept.of_uint8(unchanged)},
        hooks={"PIL.ImageOps.equalize": accept.only(None)},
    ),
    *_everywhere("adjust_saturation", _MIX, KernelOp, _FACTORS, accept.factor, keeps=_is_grey),
    *_everywhere(
        "adjust_hue",
        partial(_MIX, renews=always),
        partial(PLANAR, elementwise=True),
        ((-0.5,), (-0.13,), (0.0,), (0.31,), (0.5,)),
        _hue,
        v1={"kind": partial(ELEMENTWISE, memory="interleaved")},
        v2={"apply": adjust_hue},
        keeps=_is_grey,
    ),
    *_everywhere("adjust_sharpness", partial(EffectOp, kind="neighbourhood"), KernelOp, _FACTORS, accept.factor),
    _MIX(
        "to_grayscale",
        lambda image, params: private(_V1).to_grayscale(image, *params),
        ("num_output_channels",),
        ((1,), (3,)),
        channels=lambda channels, params: params[0],
        keeps=lambda channels, params: channels == params[0] == 1,
        renews=lambda params: params[0] == 3,
    ),
    *tensor_rows(
        "rgb_to_grayscale",
        partial(PLANAR, elementwise=True),
        ((1,), (3,)),
        accept.channels,
        v1={"channels": lambda channels, params: channels if params[0] == 3 else params[0]},
        channels=lambda channels, params: params[0],
    ),
    tensor_row(
        2,
        "grayscale_to_rgb",
        partial(PLANAR, elementwise=True),
        channels=lambda channels, params: 3,
        keeps=lambda channels, params: channels == 3,
    ),
    _MIX(
        "permute_channels",
        lambda image, params: F2.permute_channels(image, list(params[0])),
        ("permutation",),
        _PERMUTATIONS,
        hooks={"torchvision.transforms.v2.functional._color._permute_channels_image_pil": permuted},
        renews=always,
    ),
    tensor_row(2, "permute_channels", partial(PLANAR, elementwise=True), _PERMUTATIONS, accept.permutation),
    LutOp("point", _pointed, ("levels",), ((bytes(level * 7 % 256 for level in range(768)),),), levels=_pointed),
)
