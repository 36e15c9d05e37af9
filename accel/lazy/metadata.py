"""What is known of a late tensor without its values, and answered from the shell."""

from __future__ import annotations

import torch

_GETTERS = [
    "shape",
    "dtype",
    "device",
    "layout",
    "ndim",
    "is_cuda",
    "is_cpu",
    "is_sparse",
    "is_quantized",
    "is_nested",
    "is_meta",
    "is_mkldnn",
    "requires_grad",
    "is_leaf",
    "grad",
    "grad_fn",
    "names",
    "itemsize",
    "nbytes",
]
_METHODS = [
    "size",
    "dim",
    "stride",
    "numel",
    "nelement",
    "ndimension",
    "element_size",
    "storage_offset",
    "is_contiguous",
    "is_floating_point",
    "is_complex",
    "is_signed",
    "get_device",
    "__len__",
    "dim_order",
]
METADATA = (
    {getattr(torch.Tensor, name).__get__ for name in _GETTERS if hasattr(torch.Tensor, name)}
    | {getattr(torch.Tensor, name) for name in _METHODS}
    | {torch.numel, torch.is_floating_point, torch.is_complex}
)
