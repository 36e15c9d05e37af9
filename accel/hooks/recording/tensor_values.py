"""Steps on single values of lazy tensors: what ``normalize``, ``erase`` and changes of the dtype record."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

import torch

from accel.lazy.tensor import LazyTensor
from accel.lazy.tensor_base import LazyTensorBase, is_lazy
from accel.ops import OPS

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
    apply = OPS[name].apply
    assert apply is not None
    apply(torch.zeros((channels, 1, 1), dtype=dtype, device="cpu"), *params)


def in_place(tensor: LazyTensorBase, after: LazyTensorBase) -> LazyTensorBase:
    """The tensor, with what was recorded on it to make the other one, of the same shape and dtype."""
    own, lazy = tensor.lazy, after.lazy
    own.recipes, own.after, own.part, own.since = lazy.recipes, lazy.after, lazy.part, lazy.since
    return tensor


def recorded_erase(tensor: T, i: Any, j: Any, h: Any, w: Any, v: Any, inplace: bool = False) -> T | None:
    """The tensor with a rectangle erased; None where the original decides."""
    if v is tensor:  # RandomErasing found no rectangle that fits, and puts the image where the image is
        return tensor.then() if (i, j, h, w) == (0, 0, *tensor.lazy.shape[1:]) else None
    params = erased((i, j, h, w), v, tensor.lazy.shape)
    return None if params is None else tensor.then(("erase", params))


def erased(place: tuple[Any, ...], value: Any, shape: tuple[int, int, int]) -> tuple[Any, ...] | None:
    """The parameters of ``erase`` on an image [channels, height, width]; None for what is not a place inside it."""
    channels, height, width = shape
    if not all(type(number) is int for number in place) or not isinstance(value, torch.Tensor):
        return None
    top, left, rows, columns = place
    inside = 0 <= top <= top + rows <= height and 0 <= left <= left + columns <= width
    if not inside or value.ndim > 3 or value.device.type != "cpu" or value.requires_grad:
        return None
    value = value.reshape((1,) * (3 - value.ndim) + tuple(value.shape))
    fits = all(size in (1, whole) for size, whole in zip(value.shape, (channels, rows, columns), strict=True))
    return (*place, value.clone()) if fits else None


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
