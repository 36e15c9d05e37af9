"""Gaussian blurs compared with torchvision's."""

from typing import Any

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import functional as F
from torchvision.transforms.v2 import functional as F2

import accel
from accel.backends.shared import gaussian

UNKNOWN = {
    "torch adds up Gaussian blurs here in an order that accel does not know; torchvision ran them",
    "gaussian_blur has no kernel for the device; the host ran it",
}


def fallbacks() -> dict[str, int]:
    """``accel.stats()["fallbacks"]``; without those of blurs on a processor on which torch adds up in another order."""
    found = accel.stats()["fallbacks"]
    kernels = ((3, 3), (1, 9), (23, 3))
    known = [gaussian.order_of((*each, 1.0, 1.0, 2), (60, 60, count)) for each in kernels for count in (1, 3)]
    return {reason: times for reason, times in found.items() if None not in known or reason not in UNKNOWN}


def stripes(mode: str = "RGB", levels: tuple[int, ...] = (100, 101)) -> Image.Image:
    """An image of two levels that many windows have as many of: their sums lie at halves."""
    return Image.fromarray(np.resize(np.array(levels, np.uint8), (50, 60))).convert(mode)


def assert_equal(images: list[Any], kernel: list[int], sigma: list[float], **options: Any) -> None:
    def blurred() -> list[torch.Tensor]:
        of_images = [
            F.pil_to_tensor(version.gaussian_blur(x.copy(), kernel, sigma)) for version in (F, F2) for x in images
        ]
        of_tensors = [version.gaussian_blur(F.pil_to_tensor(x), kernel, sigma) for version in (F, F2) for x in images]
        return [torch.clone(each) for each in of_images + of_tensors]

    expected = blurred()
    with accel.image_backend(**{"name": "cpu", **options}):
        found = blurred()
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert torch.equal(one, other), f"{number}: {kernel} {sigma} {tuple(one.shape)}"
