"""``per_image``: a transform of images as a transform of batches that draws for each image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import default_collate


def per_image(transform: Callable[[Any], Any]) -> Callable[[torch.Tensor], Any]:
    """Make a transform of single images one of batches, in which each image gets random numbers of its own.

    torchvision's transforms draw once for a whole batch. The result equals the loop over images in every bit, random
    states included; under a backend of accel's the whole batch is recorded and computed at once, on the device that it
    is sent to.

    Args:
        transform: any transform of an image, such as one of ``torchvision.transforms.v2``.

    Returns:
        A function of a batch [images, channels, height, width], lazy or not, or of a sequence of images. It returns
        the transformed images as ``default_collate`` puts them together: usually a tensor [images, channels, height,
        width].

    Raises:
        RuntimeError: as ``torch.stack`` does, if results differ in size, or there are no images.
    """

    def transformed(batch: torch.Tensor) -> Any:
        return default_collate([transform(image) for image in batch])

    return transformed
