"""Recorders of steps on single values of lazy tensors: ``normalize``, ``erase`` and changes of the dtype.

A recorder returns the lazy result, or None if torchvision's own function must run, which also raises errors.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar

import torch

from accel.hooks.patch import Function
from accel.lazy.tensor import LazyTensor
from accel.lazy.tensor_base import LazyTensorBase, is_lazy, values_of
from accel.ops import Left, tensor_op
from accel.ops.values import erased

T = TypeVar("T", bound=LazyTensorBase)


def by_v1(record: Function, original: Function, *args: Any, **kwargs: Any) -> Any:
    """A function of v1 on tensors; ``record`` returns the lazy result, or None, for its arguments.

    On torchvision's own classes of tensors nothing is recorded: v1 sometimes makes plain tensors of them.
    """
    if not args:  # the image is given by its name
        args = tuple([kwargs.pop(name) for name in original.__code__.co_varnames[:1] if name in kwargs])
    image = args[0] if args else None
    lazy = None
    with suppress(Left):
        lazy = record(*args, **kwargs) if type(image) is LazyTensor and is_lazy(image) else None
    if lazy is not None:
        return lazy
    if isinstance(image, LazyTensorBase):
        args = (values_of(image), *args[1:])
    return original(*args, **kwargs)


def normalize(image: T, mean: Any, std: Any, inplace: bool = False) -> T | None:
    means, stds = _numbers(mean), _numbers(std)
    if means is None or stds is None:
        return None
    lazy = _with_value_step(image, ("normalize", (means, stds)), image.lazy.dtype)
    return _in_place(image, lazy) if inplace else lazy


def erase(image: T, i: Any, j: Any, h: Any, w: Any, v: Any, inplace: bool = False) -> T | None:
    if v is not image:
        params = erased(image.lazy, (i, j, h, w, v, False))
        lazy = None if params is None else image.then(("erase", params))
    else:  # RandomErasing found no rectangle that fits, and erases the whole image by itself
        lazy = image.then() if (i, j, h, w) == (0, 0, *image.lazy.shape[1:]) else None
    return _in_place(image, lazy) if inplace else lazy


def convert_image_dtype(image: T, dtype: Any = torch.float) -> T | None:
    return _cast(image, "convert_image_dtype", dtype)


def to_dtype(image: T, dtype: Any = torch.float, scale: bool = False) -> T | None:
    return _cast(image, "to_dtype", dtype, scale)


def _cast(image: T, name: str, dtype: Any, *more: Any) -> T | None:
    if not isinstance(dtype, torch.dtype):
        return None
    return image if dtype == image.lazy.dtype else _with_value_step(image, (name, (dtype, *more)), dtype)


def _with_value_step(image: T, step: Any, dtype: torch.dtype) -> T | None:
    lazy = image.lazy
    if dtype.itemsize > 8:  # complex128, for which there are no tables
        return None
    try:
        _tried(step, lazy.shape[0], lazy.dtype)
    except Exception:
        return None
    return image.then(step, dtype=dtype)


@lru_cache(maxsize=256)
def _tried(step: Any, channels: int, dtype: torch.dtype) -> None:
    """Run a value step on one pixel, which raises if the step's parameters are wrong."""
    name, params = step
    tensor_op(name).apply(torch.zeros((channels, 1, 1), dtype=dtype, device="cpu"), *params)


def _in_place(image: T, after: T | None) -> T | None:
    """Give the image the steps of ``after``, which has its shape and dtype, and return it; None if it has aliases, or
    channels in the same memory, which torch refuses, or there is no ``after``."""
    if after is None or image.lazy.aliased or image.lazy.layout.expanded:
        return None
    own, lazy = image.lazy, after.lazy
    if lazy.after and not own.layout.usual:
        return None
    own.recipes, own.after, own.progress, own.since = lazy.recipes, lazy.after, lazy.progress, lazy.since
    return image


def _numbers(sequence: Any) -> tuple[float, ...] | None:
    """A flat sequence of numbers as a tuple of floats; None for other values."""
    if isinstance(sequence, torch.Tensor):
        sequence = sequence.tolist() if sequence.ndim == 1 else None
    try:
        return tuple([value if type(value) is float else _number(value) for value in sequence])
    except (TypeError, ValueError):
        return None


def _number(value: Any) -> float:
    if getattr(value, "ndim", 0):  # float() takes such arrays only up to NumPy 2.3, and warns
        raise TypeError("an array is no number")
    return float(value)
