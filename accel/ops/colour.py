"""Rows of the table: colour ops on Pillow images, as torchvision has Pillow run them, and on tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from PIL import Image, ImageEnhance, ImageOps
from torchvision.transforms.v2 import functional as F2

from accel.ops import accept
from accel.ops.row import Accept, EffectOp, KernelOp, LutOp, Op, Params, Picture, Subject, TensorOp, ValueOp, always
from accel.ops.tensors import tensor_row
from accel.system.private_names import private

_V1 = "torchvision.transforms._functional_pil"
_pil = private(_V1, "to_grayscale")


def _everywhere(
    name: str,
    params: tuple[str, ...],
    samples: tuple[Params, ...],
    accept: Accept,
    on_images: Callable[..., Op],
    on_tensors: Callable[..., TensorOp],
    *,
    hooks: dict[str, Accept] | None = None,
    tensor_samples: tuple[Params, ...] | None = None,
    on_v1_tensors: Callable[..., TensorOp] | None = None,
    v1_accept: Accept | None = None,
    **more: Any,
) -> tuple[Op, ...]:
    """The rows of a function that v1 of torchvision has for Pillow images and for tensors, and v2 for tensors.

    Args:
        name: the function's.
        params: its parameters after the first.
        samples: parameters to try it with.
        accept: see ``Accept``.
        on_images: the class of the row for Pillow images, with what is special to it.
        on_tensors: the class of the rows for tensors, with what is special to them.
        hooks: what else records it on Pillow images.
        tensor_samples: parameters to try it with on tensors, if others.
        on_v1_tensors: the class of the row for tensors of v1, if another one.
        v1_accept: the check for tensors of v1, if another one.
        **more: other attributes of all rows.
    """
    F_pil = private(_V1, name)
    hooks = {f"{_V1}.{name}": accept, **(hooks or {})}
    image = on_images(
        name, lambda image, given: getattr(F_pil, name)(image, *given), params, samples, hooks=hooks, **more
    )
    v1 = tensor_row(
        1, name, params, tensor_samples or samples, v1_accept or accept, on_v1_tensors or on_tensors, **more
    )
    v2 = tensor_row(2, name, params, tensor_samples or samples, accept, on_tensors, **more)
    return image, v1, v2


def _gamma(picture: Image.Image, params: Params) -> Image.Image:
    gamma, gain = params
    table = [int((255 + 1 - 1e-3) * gain * pow(level / 255.0, gamma)) for level in range(256)]
    return picture.point(table * len(picture.getbands()))


def _hue(of: Subject, params: Params) -> Params | None:
    """Accept what is in range, but not on a grey image, which torchvision gives back itself."""
    grey = isinstance(of, Picture) and of.shape[0] == 1
    return None if grey else accept.numbers("hue_factor", -0.5, 0.5)(of, params)


def permuted(of: Subject, params: Params) -> Params | None:
    """Accept another order of red, green and blue."""
    return accept.permutation(of, params) if of.shape[0] == 3 else None


def _grey_channels(channels: int, params: Params) -> int:
    """The channels that v1 makes of a tensor: it gives back what is grey already."""
    return channels if params[0] == 3 else int(params[0])


def _pointed(picture: Image.Image, params: Params) -> Image.Image:
    return picture.point(list(params[0] * 3)[: 256 * len(picture.getbands())])


_FACTORS = ((0.0,), (0.37,), (1.0,), (1.73,))
_PERMUTATIONS = (((2, 0, 1),), ((1, 0, 2),))

ROWS = (
    *_everywhere(
        "adjust_brightness",
        ("brightness_factor",),
        (*_FACTORS, (-0.4,)),
        accept.factor,
        partial(LutOp, levels=lambda picture, params: ImageEnhance.Brightness(picture).enhance(*params), renews=always),
        partial(ValueOp, drawn=True),
        tensor_samples=_FACTORS,
    ),
    *_everywhere(
        "adjust_gamma",
        ("gamma", "gain"),
        ((0.5, 1.0), (2.2, 1.0), (1.3, 1.7), (0, 1)),
        accept.numbers("gamma and gain", 0),
        partial(LutOp, levels=_gamma),
        # no table: torch takes powers of the last few values of a tensor in another way than those before
        KernelOp,
    ),
    *_everywhere(
        "invert",
        (),
        ((),),
        accept.as_given,
        partial(LutOp, levels=lambda picture, params: ImageOps.invert(picture)),
        ValueOp,
    ),
    *_everywhere(
        "posterize",
        ("bits",),
        ((1,), (3,), (8,)),
        accept.bits,
        partial(LutOp, levels=lambda picture, params: ImageOps.posterize(picture, *params)),
        partial(ValueOp, drawn=True, takes="pixels"),
        v1_accept=accept.of_uint8(accept.bits),
    ),
    *_everywhere(
        "solarize",
        ("threshold",),
        ((0,), (100.5,), (256,)),
        accept.threshold,
        partial(LutOp, levels=lambda picture, params: ImageOps.solarize(picture, *params)),
        partial(ValueOp, drawn=True),
        tensor_samples=((0,), (0.43,)),
    ),
    *_everywhere(
        "adjust_contrast",
        ("contrast_factor",),
        _FACTORS,
        accept.factor,
        partial(EffectOp, kind="statistic", renews=always),
        KernelOp,
    ),
    *_everywhere(
        "autocontrast",
        (),
        ((),),
        accept.as_given,
        partial(EffectOp, kind="statistic"),
        KernelOp,
        hooks={"PIL.ImageOps.autocontrast": accept.only(0, None, None, False)},
    ),
    *_everywhere(
        "equalize",
        (),
        ((),),
        accept.as_given,
        partial(EffectOp, kind="statistic"),
        partial(KernelOp, takes="pixels", memory="planar"),
        hooks={"PIL.ImageOps.equalize": accept.only(None)},
        v1_accept=accept.of_uint8(accept.as_given),
    ),
    *_everywhere(
        "adjust_saturation",
        ("saturation_factor",),
        _FACTORS,
        accept.factor,
        partial(EffectOp, kind="mix"),
        KernelOp,
        keeps=lambda channels, params: channels == 1,
    ),
    *_everywhere(
        "adjust_hue",
        ("hue_factor",),
        ((-0.5,), (-0.13,), (0.0,), (0.31,), (0.5,)),
        _hue,
        partial(EffectOp, kind="mix", renews=always),
        partial(KernelOp, elementwise=True, memory="planar"),
        on_v1_tensors=partial(KernelOp, elementwise=True, memory="interleaved"),
        keeps=lambda channels, params: channels == 1,
    ),
    *_everywhere(
        "adjust_sharpness",
        ("sharpness_factor",),
        _FACTORS,
        accept.factor,
        partial(EffectOp, kind="neighbourhood"),
        KernelOp,
    ),
    EffectOp(
        "to_grayscale",
        lambda image, params: _pil.to_grayscale(image, *params),
        ("num_output_channels",),
        ((1,), (3,)),
        kind="mix",
        channels=lambda channels, params: params[0],
        keeps=lambda channels, params: channels == params[0] == 1,
        renews=lambda params: params[0] == 3,
    ),
    *(
        tensor_row(
            version,
            "rgb_to_grayscale",
            ("num_output_channels",),
            ((1,), (3,)),
            accept.channels,
            partial(KernelOp, elementwise=True, memory="planar"),
            channels=_grey_channels if version == 1 else lambda channels, params: params[0],
        )
        for version in (1, 2)
    ),
    tensor_row(
        2,
        "grayscale_to_rgb",
        (),
        ((),),
        accept.as_given,
        partial(KernelOp, elementwise=True),
        channels=lambda channels, params: 3,
        keeps=lambda channels, params: channels == 3,
    ),
    EffectOp(
        "permute_channels",
        lambda image, params: F2.permute_channels(image, list(params[0])),
        ("permutation",),
        _PERMUTATIONS,
        hooks={"torchvision.transforms.v2.functional._color._permute_channels_image_pil": permuted},
        kind="mix",
        renews=always,
    ),
    tensor_row(
        2,
        "permute_channels",
        ("permutation",),
        _PERMUTATIONS,
        accept.permutation,
        partial(KernelOp, elementwise=True, memory="planar"),
    ),
    LutOp(
        "point",
        _pointed,
        ("levels",),
        ((bytes(level * 7 % 256 for level in range(768)),),),
        levels=_pointed,
    ),
)
