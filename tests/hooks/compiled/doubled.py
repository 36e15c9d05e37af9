"""A dataset that was changed by its user."""

from typing import Any

from torchvision.datasets import ImageFolder


class Doubled(ImageFolder):
    def __getitem__(self, index: int) -> Any:
        image, target = super().__getitem__(index)
        return image, 2 * target
