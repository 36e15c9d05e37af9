"""The number of images and bytes of a batch, whatever its structure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence


def extent(data: Any, batch_size: int | None, collated: bool) -> tuple[int, int | None]:
    """The number of images in a batch and the bytes of its tensors; None for the bytes if it has no tensors."""
    tensors: list[torch.Tensor] = []
    todo, images = [data], None
    while todo and len(tensors) < 64:
        each = todo.pop(0)
        if isinstance(each, PackedSequence):
            images = int(each.batch_sizes[0]) if images is None else images  # all sequences have a first step
            tensors.append(each.data)
        elif isinstance(each, torch.Tensor):
            tensors.append(each)
        elif isinstance(each, Mapping):
            todo += each.values()
        elif isinstance(each, (list, tuple)):
            if each and images is None and isinstance(each[0], torch.Tensor) and each is not data:
                images = len(each)
            todo += each[:64]
    if images is None:
        least = 1 if collated else 4  # without a batch dimension an image has up to three
        images = tensors[0].shape[0] if tensors and tensors[0].ndim >= least else batch_size or 1
    size = sum(each.numel() * each.dtype.itemsize for each in tensors) if tensors else None
    return images, size
