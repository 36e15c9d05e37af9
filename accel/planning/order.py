"""The order of steps: what a recipe's steps, which are in the order in which they were recorded, are taken in.

A plan has the steps on pixels first, then those on single values, of which it makes a table, then torchvision's own
functions on what comes out. A step on pixels that is recorded on a tensor is taken ahead of the steps on values before
it, where that gives the same:

- never ahead of values that were put in (``erase``), nor of a function that torchvision runs;
- ahead of any others if all that it does is to show some of the pixels that are there, in another place: each value is
  made of one level, wherever that stands;
- else, as it makes new levels or brings in a colour, only while the values are the pixels themselves.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from accel.ops import OPS
from accel.ops.row import Op, Params, Size
from accel.recipe import Step


class Parts(NamedTuple):
    """A recipe's steps in the order of a plan: on pixels, on single values, and torchvision's with all behind them."""

    pixels: tuple[Step, ...]
    values: tuple[Step, ...]
    kernels: tuple[Step, ...]


def _is_for_either(op: Op) -> bool:
    """Whether a table of uint8 values is made for an op, but of floats, where one image's alone is dear, none."""
    return op.kind == "value" and "." in op.name and bool(op.params)


_VALUES = {op.name for op in OPS.values() if op.kind in ("value", "patch") and not _is_for_either(op)}
_EITHER = {op.name for op in OPS.values() if _is_for_either(op)}
_KERNELS = {op.name for op in OPS.values() if op.kind == "kernel"}
_LATER = _KERNELS | _EITHER
_ON_VALUES = _VALUES | _LATER


def parts(steps: tuple[Step, ...]) -> Parts:
    """A recipe's steps in the order of a plan."""
    pixels, values = [], []
    for number, step in enumerate(steps):
        name = step[0]
        if name not in _ON_VALUES:
            pixels.append(step)
        elif name in _VALUES or (name in _EITHER and not _floats(values)):
            values.append(step)
        else:
            return Parts(tuple(pixels), tuple(values), steps[number:])
    return Parts(tuple(pixels), tuple(values), ())


def has_kernels(steps: tuple[Step, ...]) -> bool:
    """Whether torchvision runs some of the steps."""
    for step in steps:
        if step[0] in _LATER:
            return bool(parts(steps).kernels)
    return False


def is_kernel(name: str, dtype: torch.dtype) -> bool:
    """Whether torchvision runs a step on values of this dtype, whatever comes before it."""
    return name in _KERNELS or (name in _EITHER and dtype.is_floating_point)


def _floats(values: list[Step]) -> bool:
    dtypes = [params[0] for _, params in values if params and isinstance(params[0], torch.dtype)]
    return bool(dtypes) and dtypes[-1].is_floating_point


def may_lead(new: tuple[Step, ...], steps: tuple[Step, ...], size: Size) -> bool:
    """Whether steps on pixels, of an image of this size, give the same ahead of the values of the steps before them."""
    are_pixels = True
    for name, _ in steps:
        if name in _ON_VALUES and name != "pil_to_tensor":
            if name == "erase" or name in _KERNELS or (name in _EITHER and has_kernels(steps)):
                return False
            are_pixels = False
    return are_pixels or all([_only_shows(OPS[name], params, size) for name, params in new])


def _only_shows(op: Op, params: Params, size: Size) -> bool:
    """Whether an op on pixels does nothing but show some of those that are there."""
    return op.kind == "index" and (op.fill is None or not op.fills(size, params))


def erases(values: tuple[Step, ...]) -> bool:
    """Whether steps on values put some in."""
    return "erase" in [name for name, _ in values]
