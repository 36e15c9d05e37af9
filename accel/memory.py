"""Host memory for tensors that cross a process border."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch


def shared(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """An uninitialised tensor in shared memory: sending it to another process sends a handle."""
    storage = torch.UntypedStorage._new_shared(prod(shape) * dtype.itemsize)
    return torch.empty(0, dtype=dtype).set_(storage, 0, tuple(shape))  # type: ignore[call-overload,no-any-return]
