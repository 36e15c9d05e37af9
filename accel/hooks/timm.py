"""The samples of a batch on their way through a collate function.

What a function does not stack is computed together (``accel.lazy.group``); timm's, which copies uint8 images one by
one into a new tensor, is done late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import default_collate

from accel.lazy import group, tensor
from accel.lazy.base import is_late
from accel.lazy.search import late_tensors

Collate = Callable[..., Any]


class Collating:
    """A collate function that knows late samples; everything else is passed on as it is."""

    def __init__(self, original: Collate) -> None:
        self.original = original
        self._collate = original
        if getattr(original, "__module__", None) == "timm.data.loader" and original.__name__ == "fast_collate":
            self._collate = fast_collate(original)
        self._stacks = original is default_collate

    def __call__(self, samples: Any) -> Any:
        if not self._stacks:
            lates = dict.fromkeys(each.late for each in late_tensors(samples) if is_late(each))
            group.group(list(lates))
        return self._collate(samples)


def fast_collate(original: Collate) -> Collate:
    """``timm.data.loader.fast_collate``: (images, targets) with the images, all uint8, as one late batch."""

    def collate(batch: Any) -> Any:
        images = _in_order(batch)
        if not images or not is_late(images) or images[0].late.dtype != torch.uint8:
            return original(batch)
        if any(image.late.shape != images[0].late.shape for image in images):  # copying broadcasts
            return original(batch)
        stacked = tensor.stack(images)
        if stacked is None:
            return original(batch)
        blank = torch.empty(0, dtype=torch.uint8, device="cpu")  # timm's own code sees to the targets
        several = [(blank,) * len(sample[0]) if isinstance(sample[0], tuple) else blank for sample in batch]
        _, targets = original([(some, *sample[1:]) for some, sample in zip(several, batch, strict=True)])
        return tensor.evaluated_in_worker(stacked), targets

    return collate


def _in_order(batch: Any) -> list[Any]:
    """The images as timm puts them into the batch: all first ones of samples with several, then all second ones."""
    if not all(isinstance(sample, tuple) and len(sample) > 1 for sample in batch):
        return []
    first = [sample[0] for sample in batch]
    if not all(isinstance(images, tuple) for images in first):
        return first
    if len({len(images) for images in first}) > 1:
        return []
    return [image for images in zip(*first, strict=True) for image in images]
