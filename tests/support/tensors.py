"""Lazy tensors of every form, for the tests that use them."""

from collections.abc import Callable

import torch
from torchvision.transforms import functional as F

import accel
from tests.support import helpers
from tests.support.helpers import MEAN, STD, is_lazy

COLOUR, GREY = helpers.pictures()[0], helpers.pictures()[3]


def make_single() -> torch.Tensor:
    return F.normalize(F.to_tensor(COLOUR.open().resize((9, 7))), MEAN, STD)


def make_uint8() -> torch.Tensor:
    return F.pil_to_tensor(COLOUR.open().resize((9, 7)))


def make_grey() -> torch.Tensor:
    return F.to_tensor(GREY.open().crop((3, 4, 8, 11)))


def make_batch() -> torch.Tensor:
    return torch.stack([F.to_tensor(COLOUR.open().resize((9, 7), code)) for code in range(6)])


def make_crops() -> torch.Tensor:
    crops = [torch.stack([F.to_tensor(crop) for crop in F.ten_crop(COLOUR.open(), [20, 30])]) for _ in range(2)]
    return torch.stack(crops)


def make_dot() -> torch.Tensor:
    return F.to_tensor(GREY.open().resize((1, 1)))


MAKERS = {
    "single": make_single,
    "uint8": make_uint8,
    "grey": make_grey,
    "batch": make_batch,
    "crops": make_crops,
    "dot": make_dot,
}
Maker = Callable[[], torch.Tensor]


def both_of_each() -> list[tuple[torch.Tensor, torch.Tensor]]:
    with accel.image_backend("cpu"):
        lazy = [make() for make in MAKERS.values()]
    assert all(map(is_lazy, lazy))
    return list(zip(lazy, (make() for make in MAKERS.values()), strict=True))


def both(make: Maker) -> tuple[torch.Tensor, torch.Tensor]:
    with accel.image_backend("cpu"):
        lazy = make()
    assert is_lazy(lazy)
    return lazy, make()
