"""Rows of the table: ops on the values of tensors; and erasing, also of images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torchvision.transforms import functional as F
from torchvision.transforms.v2 import functional as F2

from accel.ops.row import EffectOp, Params, PatchOp, Subject, ValueOp, always
from accel.system.private_names import private

F_t = private("torchvision.transforms._functional_tensor", "convert_image_dtype", "normalize")


def _with_default_dtype(dtype: torch.dtype, function: Callable[[], Any]) -> Any:
    previous = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        return function()
    finally:
        torch.set_default_dtype(previous)


def _erased(values: torch.Tensor, top: int, left: int, height: int, width: int, value: torch.Tensor) -> torch.Tensor:
    values = values.clone()
    values[..., top : top + height, left : left + width] = value.to(values.device)
    return values


def erased(of: Subject, params: Params) -> Params | None:
    """Accept (top, left, height, width, value, inplace) for a place inside; returns the parameters of ``erase``."""
    *place, value, _ = params
    channels, height, width = of.shape
    if not all(type(number) is int for number in place) or not isinstance(value, torch.Tensor):
        return None
    top, left, rows, columns = place
    inside = 0 <= top <= top + rows <= height and 0 <= left <= left + columns <= width
    if not inside or value.ndim > 3 or value.device.type != "cpu" or value.requires_grad:
        return None
    value = value.reshape((1,) * (3 - value.ndim) + tuple(value.shape))
    fits = all(size in (1, whole) for size, whole in zip(value.shape, (channels, rows, columns), strict=True))
    return (*place, value.clone()) if fits else None


ROWS = (
    ValueOp(
        "to_tensor",
        lambda image, params: _with_default_dtype(params[0], lambda: F.to_tensor(image)),
        ("dtype",),
        ((torch.float32,), (torch.float64,)),
        takes="image",
        apply=lambda pixels, dtype: pixels.to(dtype).div(255),
    ),
    ValueOp("pil_to_tensor", lambda image, params: F.pil_to_tensor(image), takes="image", apply=lambda pixels: pixels),
    ValueOp(
        "convert_image_dtype",
        lambda tensor, params: F.convert_image_dtype(tensor, *params),
        ("dtype",),
        ((torch.float32,), (torch.float16,), (torch.uint8,), (torch.int16,)),
        apply=lambda values, dtype: F_t.convert_image_dtype(values, dtype),
    ),
    ValueOp(
        "to_dtype",
        lambda tensor, params: F2.to_dtype(tensor, *params),
        ("dtype", "scale"),
        ((torch.float32, True), (torch.float32, False), (torch.float16, True), (torch.int32, True)),
        takes="pixels",
        apply=lambda values, dtype, scale: F2.to_dtype_image(values, dtype, scale),
    ),
    ValueOp(
        "normalize",
        lambda tensor, params: F.normalize(tensor, *params),
        ("mean", "std"),
        (((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), ((0.5,), (0.25,))),
        apply=lambda values, mean, std: F_t.normalize(values, mean=mean, std=std),
    ),
    ValueOp(
        "to",
        lambda tensor, params: tensor.to(*params),
        ("dtype",),
        ((torch.float16,), (torch.bfloat16,), (torch.float64,)),
        apply=lambda values, dtype: values.to(dtype),
    ),
    PatchOp(
        "erase",
        lambda tensor, params: F.erase(tensor, *params),
        ("top", "left", "height", "width", "value"),
        ((0, 0, 1, 1, torch.tensor([[[0.5]]])), (2, 1, 3, 4, torch.linspace(-1, 1, 36).view(3, 3, 4))),
        apply=_erased,
        holds_tensors=True,
    ),
    EffectOp(
        "erase_image",
        lambda image, params: F2.erase(image, *params),
        ("top", "left", "height", "width", "value"),
        ((0, 0, 1, 1, torch.tensor([[[77]]], dtype=torch.uint8)),),
        hooks={"torchvision.transforms.v2.functional._augment._erase_image_pil": erased},
        renews=always,
        holds_tensors=True,
        kind="torchvision",
    ),
)
