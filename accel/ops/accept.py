"""Checks of arguments that several ops share: what a row accepts cannot fail when it is run.

All else runs at once, on the values, and raises what torchvision raises. NaN and infinity, for which the results are
undefined, are refused here.
"""

from __future__ import annotations

import math
import sys
from operator import index
from typing import Any

import torch

from accel.ops.row import Accept, Params, Picture, Subject
from accel.system import arithmetic, counters

FLOAT32 = torch.finfo(torch.float32).max
"""The largest number of float32, in which Pillow blends."""


class NotFinite(ValueError):
    """A parameter is NaN or infinite."""


def whole(*numbers: Any) -> tuple[int, ...] | None:
    """Whole numbers of any kind (NumPy's, ...) as ints, which steps have; None if others are among them."""
    try:
        return tuple(map(index, numbers))
    except TypeError:
        return None


def are_numbers(values: Any, name: str, largest: float = sys.float_info.max) -> bool:
    """Whether these are numbers; none is larger then, or NaN.

    Raises:
        NotFinite: one is.
    """
    for value in values:
        if not isinstance(value, (int, float)):
            return False
    for value in values:
        if not abs(value) <= largest:
            float(value)  # of some ints there is none: torchvision says so
            raise NotFinite(f"{name} must be finite{' in float32' * (largest == FLOAT32)}, got {value}")
    return True


def is_listed(value: Any, name: str, *lengths: int) -> bool:
    """Whether this is a list or tuple of one of these lengths, of numbers."""
    return isinstance(value, (list, tuple)) and len(value) in lengths and are_numbers(value, name)


def numbers(name: str, least: float = -math.inf, most: float = math.inf) -> Accept:
    """Accept numbers of which the first is one of these."""

    def accept(of: Subject, params: Params) -> Params | None:
        if most < math.inf and isinstance(params[0], (int, float)) and not least <= params[0] <= most:
            return None  # NaN is not either, and torchvision says so
        finite = are_numbers(params, name, FLOAT32) if isinstance(of, Picture) else are_numbers(params, name)
        return params if finite and least <= params[0] <= most else None

    return accept


_at_least_0, _any = numbers("a factor", 0), numbers("a factor")


def factor(of: Subject, params: Params) -> Params | None:
    """Accept one number: any for Pillow, which takes a tensor or an array of one element as well; else from 0 on."""
    if not isinstance(of, Picture):
        return _at_least_0(of, params)
    return _any(of, params if isinstance(params[0], (int, float)) else (float(params[0]),))


def threshold(of: Subject, params: Params) -> Params | None:
    """Accept that of ``solarize``, which torchvision limits for tensors."""
    if isinstance(of, Picture):
        return factor(of, params)
    largest = 1 if of.dtype.is_floating_point else 255
    return params if are_numbers(params, "threshold") and params[0] <= largest else None


def as_given(of: Subject, params: Params) -> Params | None:
    return params


def only(*values: Any) -> Accept:
    """Accept these arguments, which are a function's defaults and no parameters of a step."""
    return lambda of, params: () if params == values else None


def channels(of: Subject, params: Params) -> Params | None:
    """Accept the number of channels that grey is to have."""
    return params if params[0] in (1, 3) else None


def permutation(of: Subject, params: Params) -> Params | None:
    """Accept another order of the channels."""
    order = tuple(map(int, params[0]))
    return (order,) if sorted(order) == list(range(of.shape[0])) else None


def _one_of(values: range) -> Accept:
    """Accept one of these whole numbers."""
    return lambda of, params: params if type(params[0]) is int and params[0] in values else None


bits, quality = _one_of(range(9)), _one_of(range(1, 101))
"""Accept those of ``posterize``; that of a JPEG file."""


def of_uint8(accept: Accept) -> Accept:
    """Accept what ``accept`` does, on uint8 only."""
    return lambda of, params: accept(of, params) if of.dtype == torch.uint8 else None


def sides(padding: Any) -> tuple[int, int, int, int] | None:
    """(left, top, right, bottom) of torchvision's forms of padding; None for what is no such form."""
    if type(padding) is int:
        return padding, padding, padding, padding
    if not isinstance(padding, (list, tuple)) or len(padding) not in (1, 2, 4):
        return None
    if not all(type(side) is int for side in padding):
        return None
    left, top, right, bottom = [*padding] * (4 // len(padding))
    return left, top, right, bottom


def listed(fill: Any) -> list[Any]:
    """The values of a fill: one for each channel, or for all."""
    return list(fill) if isinstance(fill, (list, tuple)) else [0 if fill is None else fill]


def is_fill(of: Subject, fill: Any) -> bool:
    """Whether this is a colour, or None."""
    if fill is None:
        return True
    several = isinstance(fill, (list, tuple))
    return is_listed(fill, "fill", 1, of.shape[0]) if several else are_numbers([fill], "fill")


def in_float32() -> bool:
    """Whether torch computes in float32 unless told otherwise; if not, that is counted."""
    if not arithmetic.is_default():
        counters.fallback(
            "torch's default dtype is not float32: torchvision's arithmetic on tensors was left to it, at once"
        )
        return False
    return True


def without_autocast() -> bool:
    """Whether autocast is off for the CPU; if not, that is counted."""
    if arithmetic.autocasts():
        counters.fallback(
            "autocast was on for the CPU: torchvision's convolutions and matrix products were left to it, at once"
        )
        return False
    return True
