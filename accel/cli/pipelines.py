"""The standard ImageNet pipelines, of torchvision's own classes, which ``compare`` and ``bench`` run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torchvision import transforms

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def _pipeline(*augmentations: Any) -> Any:
    return transforms.Compose([*augmentations, transforms.ToTensor(), transforms.Normalize(_MEAN, _STD)])


LEVELS = torch.tensor(_STD, dtype=torch.float64).view(3, 1, 1) * 255
"""The levels of uint8 in one unit of a pipeline's values, by channel."""

PIPELINES: dict[str, Callable[[], Any]] = {
    "train": lambda: _pipeline(transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()),
    "eval": lambda: _pipeline(transforms.Resize(256), transforms.CenterCrop(224)),
}
"""Functions that make the pipelines, by name."""
