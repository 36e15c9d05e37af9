"""Recognizing lookup tables and value tables that DALI can compute: lines, masks, folds and powers."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch

from accel.backends.dali.operator_chain import Numbers, OperatorChain
from accel.planning.stages import Levels

DTYPES = {torch.float32: "FLOAT", torch.float16: "FLOAT16", torch.uint8: "UINT8"}
"""DALI's names of the dtypes that it can return."""

Line = tuple[Numbers, Numbers]
"""(mean, std), each for every channel: a value is (byte - mean) / std."""

_BYTES = np.arange(256.0)
_LARGEST_ERROR = {torch.float32: 1e-5, torch.float16: 2e-3, torch.uint8: 0.0}


@lru_cache(maxsize=256)  # by the table's identity
def line(table: torch.Tensor) -> Line | None:
    """The line through the values [channels, 256]; None if they are not on one."""
    values = table.to(torch.float64).numpy()
    slope, first = (values[:, 255] - values[:, 0]) / 255, values[:, 0]
    if not np.isfinite(values).all() or (slope == 0).any():
        return None
    apart = np.abs(values - (first[:, None] + slope[:, None] * _BYTES))
    if apart.max() > _LARGEST_ERROR.get(table.dtype, 0.0) * np.ptp(values):
        return None
    return tuple((-first / slope).tolist()), tuple((1 / slope).tolist())


def add_lut(chain: OperatorChain, table: Levels) -> str | None:
    """Add the operator that equals a look-up in a table, to within 1; return the reason if DALI has none."""
    found = _recognised(table.tobytes(), len(table))
    if found is None:
        return "a table of levels that is no line, mask, fold or power"
    name, numbers = found
    if name:
        chain.add(name, (), tuple((number,) for number in numbers))
    return None


@lru_cache(maxsize=256)
def _recognised(content: bytes, channels: int) -> tuple[str, Numbers] | None:
    """The operator and its numbers for a table [channels, 256]; ("", ()) if it changes nothing, None if unknown."""
    table = np.frombuffer(content, np.uint8).reshape(channels, 256).astype(np.float64)
    one = table[0]
    if (table != one).any():
        return None
    if np.array_equal(one, _BYTES):
        return "", ()
    mask = int(one[255])
    if np.array_equal(one, np.arange(256) & mask):
        return "mask", (mask,)
    folded = one == 255 - _BYTES
    threshold = int(np.argmax(folded)) if folded.any() else 256
    if 0 < threshold < 256 and np.array_equal(one, np.where(threshold > _BYTES, _BYTES, 255 - _BYTES)):
        return "fold", (threshold,)
    return _as_line(one) or _as_power(one)


def _as_line(one: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[str, Numbers] | None:
    """Recognize factor * byte + shift, clipped to 0..255."""
    free = np.flatnonzero((one > 0) & (one < 255))
    if len(free) < 2:
        return None
    factor, shift = np.polyfit(free, one[free], 1)
    made = np.clip(np.rint(factor * _BYTES + shift), 0, 255)
    return ("line", (float(factor), float(shift))) if np.abs(made - one).max() <= 1 else None


def _as_power(one: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[str, Numbers] | None:
    """Recognize gain * 255 * (byte / 255) ** exponent, clipped to 0..255."""
    free = np.flatnonzero((one > 0) & (one < 255))
    if len(free) < 8:
        return None
    exponent, constant = np.polyfit(np.log(free[-64:] / 255), np.log((one[free[-64:]] + 0.5) / 255), 1)
    if not 0.05 < exponent < 20:
        return None
    gain = math.exp(constant)
    made = np.clip(np.floor(255 * gain * (_BYTES / 255) ** exponent), 0, 255)
    return ("power", (float(exponent), gain)) if np.abs(made - one).max() <= 1 else None
