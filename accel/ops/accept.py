"""Checks of arguments that several ops share: a step with accepted arguments cannot fail when it is run.

Calls with other arguments run at once, on the values, and raise what torchvision raises. NaN and infinity, for which
the results are undefined, are refused here.
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
"""The largest number of float32, the type in which Pillow blends."""


class NotFinite(ValueError):
    """Error of a parameter that is NaN or infinite."""


def whole(*numbers: Any) -> tuple[int, ...] | None:
    """Whole numbers of any type (NumPy's, ...) as ints; None if any is not a whole number."""
    try:
        return tuple(map(index, numbers))
    except TypeError:
        return None


def are_numbers(values: Any, name: str, largest: float = sys.float_info.max) -> bool:
    """Whether these are all numbers; if so, none is larger than ``largest`` in magnitude, or NaN.

    Raises:
        NotFinite: a number is.
    """
    for value in values:
        if not isinstance(value, (int, float)):
            return False
    for value in values:
        if not abs(value) <= largest:
            float(value)  # raises for ints that are too large, as torchvision does
            raise NotFinite(f"{name} must be finite{' in float32' * (largest == FLOAT32)}, got {value}")
    return True


def is_listed(value: Any, name: str, *lengths: int) -> bool:
    """Whether this is a list or tuple of numbers, of one of these lengths."""
    return isinstance(value, (list, tuple)) and len(value) in lengths and are_numbers(value, name)


def numbers(name: str, least: float = -math.inf, most: float = math.inf) -> Accept:
    """Accept numbers, the first of which is from ``least`` to ``most``."""

    def accept(of: Subject, params: Params) -> Params | None:
        if most < math.inf and isinstance(params[0], (int, float)) and not least <= params[0] <= most:
            return None  # neither is NaN, and torchvision raises
        finite = are_numbers(params, name, FLOAT32) if isinstance(of, Picture) else are_numbers(params, name)
        return params if finite and least <= params[0] <= most else None

    return accept


_at_least_0, _any = numbers("a factor", 0), numbers("a factor")


def factor(of: Subject, params: Params) -> Params | None:
    """Accept one number: any for Pillow images, also as a tensor or array of one element; at least 0 for tensors."""
    if not isinstance(of, Picture):
        found = _at_least_0(of, params)
        return found if found and found[0] <= FLOAT32 else None
    return _any(of, params if isinstance(params[0], (int, float)) else (float(params[0]),))


def threshold(of: Subject, params: Params) -> Params | None:
    """Accept the threshold of ``solarize``, which torchvision limits for tensors."""
    if isinstance(of, Picture):
        return factor(of, params)
    largest = 1 if of.dtype.is_floating_point else 255
    return params if are_numbers(params, "threshold") and params[0] <= largest else None


def unchanged(of: Subject, params: Params) -> Params | None:
    return params


def only(*values: Any) -> Accept:
    """Accept exactly these arguments, a function's defaults; the step has no parameters."""
    return lambda of, params: () if params == values else None


def channels(of: Subject, params: Params) -> Params | None:
    """Accept a number of grey channels, 1 or 3, of any type."""
    return (int(params[0]),) if params[0] in (1, 3) else None


def permutation(of: Subject, params: Params) -> Params | None:
    """Accept a permutation of the channels."""
    order = tuple(map(int, params[0]))
    return (order,) if sorted(order) == list(range(of.shape[0])) else None


def _one_of(values: range) -> Accept:
    """Accept one of these whole numbers."""
    return lambda of, params: params if type(params[0]) is int and params[0] in values else None


bits, quality = _one_of(range(9)), _one_of(range(1, 101))
"""Accept the bits of ``posterize``; the quality of a JPEG file."""


def of_uint8(accept: Accept) -> Accept:
    """Accept what ``accept`` does, but only for uint8."""
    return lambda of, params: accept(of, params) if of.dtype == torch.uint8 else None


def sides(padding: Any) -> tuple[int, int, int, int] | None:
    """(left, top, right, bottom) for torchvision's forms of padding; None for other forms."""
    if type(padding) is int:
        return padding, padding, padding, padding
    if not isinstance(padding, (list, tuple)) or len(padding) not in (1, 2, 4):
        return None
    if not all(type(side) is int for side in padding):
        return None
    left, top, right, bottom = [*padding] * (4 // len(padding))
    return left, top, right, bottom


def listed(fill: Any) -> list[Any]:
    """The values of a fill, one per channel or one for all; None: [0]."""
    return list(fill) if isinstance(fill, (list, tuple)) else [0 if fill is None else fill]


def is_fill(of: Subject, fill: Any) -> bool:
    """Whether this is a colour of one number, or one per channel, or None.

    Raises:
        NotFinite: a number is NaN or infinite.
    """
    if fill is None:
        return True
    several = isinstance(fill, (list, tuple))
    return is_listed(fill, "fill", 1, of.shape[0]) if several else are_numbers([fill], "fill")


def in_float32() -> bool:
    """Whether torch's default dtype is float32; if not, it is counted."""
    if not arithmetic.is_default():
        counters.fallback(
            "torch's default dtype is not float32: torchvision's arithmetic on tensors was left to it, at once"
        )
        return False
    return True


def without_autocast() -> bool:
    """Whether autocast is off for the CPU; if not, it is counted."""
    if arithmetic.autocasts():
        counters.fallback(
            "autocast was on for the CPU: torchvision's convolutions and matrix products were left to it, at once"
        )
        return False
    return True
