"""Gaussian blurs compared with torchvision's."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import functional as F
from torchvision.transforms.v2 import functional as F2

import accel


def stripes(mode: str = "RGB", levels: tuple[int, ...] = (100, 101)) -> Image.Image:
    """An image of two levels that many windows have as many of: their sums lie at halves."""
    return Image.fromarray(np.resize(np.array(levels, np.uint8), (50, 60))).convert(mode)


def assert_equal(images: list[Any], kernel: list[int], sigma: list[float], **options: Any) -> None:
    for version in (F, F2):
        for to_tensor, lazy in ((lambda x: x, F.pil_to_tensor), (F.pil_to_tensor, lambda x: x)):

            def blurred(to_tensor: Any = to_tensor, lazy: Any = lazy, version: Any = version) -> list[torch.Tensor]:
                return [torch.clone(lazy(version.gaussian_blur(to_tensor(x.copy()), kernel, sigma))) for x in images]

            expected = blurred()
            with accel.image_backend(**{"name": "cpu", **options}):
                found = blurred()
            for one, other in zip(found, expected, strict=True):
                assert torch.equal(one, other), f"{version.__name__} {kernel} {sigma} {tuple(one.shape)}"
