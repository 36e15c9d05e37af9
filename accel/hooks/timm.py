"""timm's ``fast_collate``, which copies uint8 images one by one into a new tensor: lazy images become one lazy batch.

timm is imported after accel, or never: its collate function is recognized by name when a DataLoader uses it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from accel.hooks.patch import Function
from accel.lazy import tensor
from accel.lazy.tensor_base import is_lazy


def adapted(collate: Function) -> Function:
    """accel's function in place of timm's ``fast_collate``; any other collate function as it is."""
    ours = getattr(collate, "__module__", None) == "timm.data.loader" and collate.__name__ == "fast_collate"
    return partial(_fast_collate, collate) if ours else collate


def _fast_collate(original: Function, batch: Any) -> Any:
    """``timm.data.loader.fast_collate``: (images, targets) with the images, all uint8, as one lazy batch."""
    images = _in_order(batch)
    if not images or not is_lazy(images) or images[0].lazy.dtype != torch.uint8:
        return original(batch)
    if any(image.lazy.shape != images[0].lazy.shape for image in images):  # copying broadcasts
        return original(batch)
    stacked = tensor.stack(images)
    if stacked is None:
        return original(batch)
    blank = torch.empty(0, dtype=torch.uint8, device="cpu")  # timm's own code collates the targets
    several = [(blank,) * len(sample[0]) if isinstance(sample[0], tuple) else blank for sample in batch]
    _, targets = original([(some, *sample[1:]) for some, sample in zip(several, batch, strict=True)])
    return tensor.materialized_in_worker(stacked), targets


def _in_order(batch: Any) -> list[Any]:
    """The images in timm's order: of samples with several images all first ones, then all second ones; [] if
    ``batch`` has another form."""
    if not all(isinstance(sample, tuple) and len(sample) > 1 for sample in batch):
        return []
    first = [sample[0] for sample in batch]
    if not all(isinstance(images, tuple) for images in first):
        return first
    if len({len(images) for images in first}) > 1:
        return []
    return [image for images in zip(*first, strict=True) for image in images]
