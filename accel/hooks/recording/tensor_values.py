"""Steps on single values of lazy tensors: what ``normalize``, ``erase`` and changes of the dtype record."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

import torch

from accel.lazy.tensor import LazyTensor
from accel.lazy.tensor_base import LazyTensorBase, is_lazy
from accel.ops import tensor_op
from accel.ops.values import erased

T = TypeVar("T", bound=LazyTensorBase)


def is_recorded(tensor: Any) -> bool:
    """Whether v1's functions record on it: of torchvision's own classes they make plain tensors, now and then."""
    return type(tensor) is LazyTensor and is_lazy(tensor)


def recorded_value(tensor: T, step: Any, dtype: torch.dtype) -> T | None:
    """The tensor with a value step; None where torchvision would refuse it."""
    lazy = tensor.lazy
    if dtype.itemsize > 8:  # complex128, of which there are no tables
        return None
    try:
        _tried(step, lazy.shape[0], lazy.dtype)
    except Exception:
        return None  # the caller runs the original on the values, which says what is wrong
    return tensor.then(step, dtype=dtype)


@lru_cache(maxsize=256)
def _tried(step: Any, channels: int, dtype: torch.dtype) -> None:
    """Run a value step on one pixel, for what it may raise."""
    name, params = step
    tensor_op(name).apply(torch.zeros((channels, 1, 1), dtype=dtype, device="cpu"), *params)


def in_place(tensor: LazyTensorBase, after: LazyTensorBase) -> LazyTensorBase:
    """The tensor, with what was recorded on it to make the other one, of the same shape and dtype."""
    own, lazy = tensor.lazy, after.lazy
    own.recipes, own.after, own.progress, own.since = lazy.recipes, lazy.after, lazy.progress, lazy.since
    return tensor


def recorded_erase(tensor: T, i: Any, j: Any, h: Any, w: Any, v: Any) -> T | None:
    """The tensor with a rectangle erased; None where the original decides."""
    if v is tensor:  # RandomErasing found no rectangle that fits, and puts the image where the image is
        return tensor.then() if (i, j, h, w) == (0, 0, *tensor.lazy.shape[1:]) else None
    params = erased(tensor.lazy, (i, j, h, w, v, False))
    return None if params is None else tensor.then(("erase", params))


def numbers(sequence: Any) -> tuple[float, ...] | None:
    """A flat sequence of numbers, hashable; None for other forms."""
    if isinstance(sequence, torch.Tensor):
        sequence = sequence.tolist() if sequence.ndim == 1 else None
    try:
        return tuple([value if type(value) is float else _number(value) for value in sequence])
    except (TypeError, ValueError):
        return None


def _number(value: Any) -> float:
    if getattr(value, "ndim", 0):  # which NumPy takes for a number only up to 2.3, and warns
        raise TypeError("an array is no number")
    return float(value)
