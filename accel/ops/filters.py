"""Rows of the table: ops that depend on surrounding pixels (blurs and JPEG), on Pillow images and tensors."""

from __future__ import annotations

from functools import partial

import torch
from PIL import ImageFilter
from torchvision.transforms import functional as F
from torchvision.transforms.v2 import functional as F2

from accel.codec.header import LARGEST_SIDE
from accel.ops import accept
from accel.ops.row import Accept, EffectOp, Params, Subject, always
from accel.ops.tensors import PLANAR, tensor_row, tensor_rows
from accel.system import counters


def kernel(of: Subject, params: Params) -> Params | None:
    """Accept (kernel size, sigma) in torchvision's forms; the parameters are sizes and sigmas of both axes."""
    kernel_size, sigma = params
    sizes = [kernel_size] * 2 if isinstance(kernel_size, int) else kernel_size
    if not isinstance(sizes, (list, tuple)) or len(sizes) != 2 or not all(type(each) is int for each in sizes):
        return None
    if sigma is None:
        sigma = [each * 0.15 + 0.35 for each in sizes]
    sigmas = list(sigma) if isinstance(sigma, (list, tuple)) else [sigma]
    sigmas = sigmas * 2 if len(sigmas) == 1 else sigmas
    if len(sigmas) != 2 or not accept.are_numbers(sigmas, "gaussian_blur: sigma"):
        return None
    lengths = reversed(of.shape[1:])
    if any(each < 1 or each % 2 == 0 or each // 2 >= length for each, length in zip(sizes, lengths, strict=True)):
        return None
    return None if min(sigmas) <= 0 else (*sizes, *map(float, sigmas))


def blurred(version: int) -> Accept:
    """Accept the arguments of v1's or v2's ``gaussian_blur``, which sample the Gaussian differently."""

    def accepted(of: Subject, params: Params) -> Params | None:
        found = kernel(of, params)
        return None if found is None or not accept.without_autocast() else (*found, version)

    return accepted


def _of_tensors(of: Subject, params: Params) -> Params | None:
    found = kernel(of, params)
    return None if found is None else (found[:2], found[2:])


def _quality(of: Subject, params: Params) -> Params | None:
    return accept.quality(of, params) if max(of.shape) <= LARGEST_SIDE else None


def _jpeg(values: torch.Tensor, quality: int) -> torch.Tensor:
    """Run ``jpeg`` on the host, wherever the values are, as torchvision's function requires."""
    if values.device.type != "cpu":
        counters.fallback("jpeg of tensors was left to the host, which waits for what the device made until there")
    jpeg: torch.Tensor = F2.jpeg(values.cpu(), quality)
    return jpeg.to(values.device)


_V2 = "torchvision.transforms.v2.functional"

ROWS = (
    EffectOp(
        "gaussian_blur",
        lambda image, params: (F, F2)[params[4] - 1].gaussian_blur(image, list(params[:2]), list(params[2:4])),
        ("kernel_x", "kernel_y", "sigma_x", "sigma_y", "version"),
        ((3, 3, 0.8, 0.8, 1), (5, 9, 1.7, 0.4, 1), (1, 3, 2.0, 9.0, 2), (9, 7, 2.5, 1.3, 2)),
        hooks={
            "torchvision.transforms.functional.gaussian_blur": blurred(1),
            f"{_V2}._misc._gaussian_blur_image_pil": blurred(2),
        },
        renews=always,
        kind="neighbourhood",
    ),
    *tensor_rows("gaussian_blur", PLANAR, (((3, 3), (0.8, 0.8)), ((5, 9), (1.7, 0.4))), _of_tensors),
    EffectOp(
        "box_blur",
        lambda image, params: image.filter(ImageFilter.BoxBlur(params)),
        ("radius_x", "radius_y"),
        ((0.0, 0.0), (1.0, 1.0), (0.3, 0.0), (2.7, 9.0), (70.0, 33.25)),
        kind="neighbourhood",
    ),
    EffectOp(
        "pillow_gaussian_blur",
        lambda image, params: image.filter(ImageFilter.GaussianBlur(params)),
        ("radius_x", "radius_y"),
        ((0.0, 0.0), (0.1, 0.1), (2.0, 2.0), (0.0, 1.3), (7.3, 0.9), (300.0, 50.0)),
        kind="neighbourhood",
    ),
    EffectOp(
        "jpeg",
        lambda image, params: F2.jpeg(image, *params),
        ("quality",),
        ((75,),),
        hooks={f"{_V2}._augment._jpeg_image_pil": _quality},
        kind="torchvision",
    ),
    tensor_row(2, "jpeg", partial(PLANAR, takes="pixels"), ((75,),), accept.of_uint8(accept.quality), apply=_jpeg),
)
