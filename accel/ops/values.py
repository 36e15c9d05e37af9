"""Rows of the table: what becomes of the values of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torchvision.transforms import functional as F
from torchvision.transforms.v2 import functional as F2

from accel.ops.row import Op
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


ROWS = (
    Op(
        "to_tensor",
        "value",
        lambda image, params: _with_default_dtype(params[0], lambda: F.to_tensor(image)),
        ("dtype",),
        ((torch.float32,), (torch.float64,)),
        apply=lambda pixels, dtype: pixels.to(dtype).div(255),
    ),
    Op(
        "pil_to_tensor",
        "value",
        lambda image, params: F.pil_to_tensor(image),
        (),
        ((),),
        apply=lambda pixels: pixels,
    ),
    Op(
        "convert_image_dtype",
        "value",
        lambda tensor, params: F.convert_image_dtype(tensor, *params),
        ("dtype",),
        ((torch.float32,), (torch.float16,), (torch.uint8,), (torch.int16,)),
        takes="floats",
        apply=lambda values, dtype: F_t.convert_image_dtype(values, dtype),
    ),
    Op(
        "to_dtype",
        "value",
        lambda tensor, params: F2.to_dtype(tensor, *params),
        ("dtype", "scale"),
        ((torch.float32, True), (torch.float32, False), (torch.float16, True), (torch.int32, True)),
        takes="pixels",
        apply=lambda values, dtype, scale: F2.to_dtype_image(values, dtype, scale),
    ),
    Op(
        "normalize",
        "value",
        lambda tensor, params: F.normalize(tensor, *params),
        ("mean", "std"),
        (((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), ((0.5,), (0.25,))),
        takes="floats",
        apply=lambda values, mean, std: F_t.normalize(values, mean=mean, std=std),
    ),
    Op(
        "to",
        "value",
        lambda tensor, params: tensor.to(*params),
        ("dtype",),
        ((torch.float16,), (torch.bfloat16,), (torch.float64,)),
        takes="floats",
        apply=lambda values, dtype: values.to(dtype),
    ),
    Op(
        "erase",
        "patch",
        lambda tensor, params: F.erase(tensor, *params),
        ("top", "left", "height", "width", "value"),
        ((0, 0, 1, 1, torch.tensor([[[0.5]]])), (2, 1, 3, 4, torch.linspace(-1, 1, 36).view(3, 3, 4))),
        takes="floats",
        apply=_erased,
        holds_tensors=True,
    ),
)
