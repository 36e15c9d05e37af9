"""Small tensors of a batch, such as labels, which a worker sends by value: faster than by a handle of shared memory."""

from __future__ import annotations

from typing import Any

import torch

_SMALL = 1 << 15
"""The most bytes of a tensor, such as labels, that is sent in the message, which is faster than by a handle."""


def by_value(tensor: torch.Tensor, contents: dict[int, bytearray]) -> Any:
    """Reduce a small tensor to its memory, once for all tensors sharing it (``contents``); None: torch must do it."""
    if tensor.device.type != "cpu" or tensor.layout != torch.strided or tensor.requires_grad or tensor.is_conj():
        return None
    storage = tensor.untyped_storage()
    if tensor.is_neg() or tensor.is_quantized or storage.is_shared() or not 0 < storage.nbytes() <= _SMALL:
        return None
    content = contents.get(storage.data_ptr())
    if content is None:
        content = contents[storage.data_ptr()] = bytearray(storage.nbytes())
        torch.frombuffer(content, dtype=torch.uint8).untyped_storage().copy_(storage)
    return _small, (content, tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())


def _small(content: bytearray, dtype: torch.dtype, *place: Any) -> torch.Tensor:
    if place == (0, (len(content) // dtype.itemsize,), (1,)) and len(content) % dtype.itemsize == 0:
        return torch.frombuffer(content, dtype=dtype)
    storage = torch.frombuffer(content, dtype=torch.uint8).untyped_storage()
    return torch.empty(0, dtype=dtype, device="cpu").set_(storage, *place)
