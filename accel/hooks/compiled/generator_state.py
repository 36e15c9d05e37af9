"""Outputs of torch's CPU generator, read and taken from its state (``torch.Generator.get_state``) by compiled code.

``tape_trials`` compares both with torch before they are used.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from accel.native import units

COMPILED = units.Unit(
    "drawing",
    *("hooks/compiled/generator_kernels.py", "hooks/compiled/drawing_kernels.py", "hooks/compiled/drawing_codes.py"),
    "native/intrinsics.py",
    seconds=0.3,
)
"""The compiled code that draws batches."""

_read = COMPILED.function("hooks.compiled.generator_kernels", "read", "int int i8[1]w i8[1]w")
_SIGNATURE = "int int int i8[1]w int int"
_advance = COMPILED.function(
    "hooks.compiled.generator_kernels", "advance", _SIGNATURE, locked=True
)  # others would draw
_scale = COMPILED.function("hooks.compiled.generator_kernels", "scale", "i8[1] float float f4[1]w")


def outputs(state: torch.Tensor, length: int) -> npt.NDArray[np.int64]:
    """The next 32-bit outputs of a generator in this state, int64 [length].

    Raises:
        ValueError: torch makes no such state.
    """
    found = np.empty(length, np.int64)
    if _read(state.data_ptr(), state.numel(), _work(state), found) < 0:
        raise ValueError(_NO_STATE)
    return found


def scaled(outputs: npt.NDArray[np.int64], bounds: tuple[float, float], found: npt.NDArray[np.float32]) -> bool:
    """Fill ``found`` with outputs as numbers between bounds; False if the last bit of one cannot be told."""
    return bool(_scale(outputs, *bounds, found))


def advance(before: torch.Tensor, state: torch.Tensor, count: int, most: int) -> int:
    """Take outputs from a generator's state, as torch does, if it is still ``before``; return 0.

    If others have taken some from it, nothing is done, and their number is returned; -1: more than ``most``, or they
    changed it otherwise.

    Raises:
        ValueError: torch makes no such state.
    """
    size = min(before.numel(), state.numel())
    taken = _advance(before.data_ptr(), state.data_ptr(), size, _work(state), most, count)
    if taken < -1:
        raise ValueError(_NO_STATE)
    return taken


def _work(state: torch.Tensor) -> npt.NDArray[np.int64]:
    """Working memory for a state."""
    return np.empty(state.numel() // 8, np.int64)


_NO_STATE = "the generator's state is none that torch makes"
