"""Transforms of a user's own, which draw from any of the three generators."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
from torchvision.transforms import functional as F1
from torchvision.transforms import v2

DRAWS: dict[str, Callable[[], float]] = {
    "torch": lambda: torch.rand(1).item(),
    "torch's normal": lambda: torch.randn(1).item(),
    "random": random.random,
    "random's normal": lambda: random.gauss(0.5, 0.3),
    "NumPy": np.random.rand,
    "NumPy's normal": np.random.randn,
}


class Own:
    """A user's own: it draws from a generator, and may turn the image then."""

    def __init__(self, generator: str) -> None:
        self.generator = generator

    def __call__(self, image: Any) -> Any:
        return F1.hflip(image) if DRAWS[self.generator]() < 0.5 else image

    def __repr__(self) -> str:
        return f"Own({self.generator})"


class OwnModule(Own, nn.Module):
    """The same as a module, which calls torchvision's functions by what it draws."""

    def __init__(self, generator: str) -> None:
        nn.Module.__init__(self)
        Own.__init__(self, generator)

    __call__ = nn.Module.__call__

    def forward(self, image: Any) -> Any:
        drawn = abs(DRAWS[self.generator]())
        if drawn < 0.2:
            return F1.adjust_brightness(image, 0.5 + drawn)
        height, width = F1.get_dimensions(image)[1:]
        return F1.resized_crop(image, 0, 0, max(1, height // 2), max(1, width // 2), [24, 26], antialias=True)


class OwnV2(v2.Transform):
    """A transform of v2's kind, with parameters of its own."""

    def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
        return {"factor": random.random() + float(torch.rand(()))}

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return self._call_kernel(v2.functional.adjust_contrast, inpt, contrast_factor=params["factor"])


class OftenFlipped(T.RandomHorizontalFlip):
    """A class derived from torchvision's, which draws once more."""

    def forward(self, img: Any) -> Any:
        return super().forward(img) if torch.rand(1) < 0.8 else img


class OwnRotation(T.RandomRotation):
    """A class derived from torchvision's, which draws elsewhere."""

    @staticmethod
    def get_params(degrees: list[float]) -> float:
        return random.uniform(*degrees)


def through_numpy(image: Any) -> Any:
    """As many scripts do with OpenCV or Albumentations in between."""
    if isinstance(image, torch.Tensor):
        return image.flip(-1) if np.random.rand() < 0.5 else image  # noqa: NPY002
    pixels = np.asarray(image)
    return Image.fromarray(np.ascontiguousarray(pixels[:, ::-1]) if np.random.rand() < 0.5 else pixels)  # noqa: NPY002


def noisy(image: Any) -> Any:
    return (image + 0.05 * torch.randn_like(image)) if image.is_floating_point() else image


class Doubled(ImageFolder):
    def __getitem__(self, index: int) -> Any:
        image, target = super().__getitem__(index)
        return image, 2 * target
