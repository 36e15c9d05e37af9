"""Tensors as the bits that look-up tables move."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

_TYPES: dict[int, tuple[torch.dtype, Any]] = {
    1: (torch.uint8, np.uint8),
    2: (torch.int16, np.uint16),
    4: (torch.int32, np.uint32),
    8: (torch.int64, np.uint64),
}


def bits(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """The tensor's memory as unsigned integers of its item size: a table look-up moves bits, whatever they mean."""
    torch_type, numpy_type = _TYPES[tensor.dtype.itemsize]
    return tensor.view(torch_type).numpy().view(numpy_type)
