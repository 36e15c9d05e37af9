"""Lookup tables of colour ops that treat each uint8 value by itself: the result for each of the 256 levels.

Pillow itself makes them, by running the op on a picture of all levels, so they are its results whatever its
arithmetic; the backends only look up.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from accel.ops import OPS
from accel.ops.row import LutOp

_LEVELS = np.arange(256, dtype=np.uint8).reshape(16, 16)


@lru_cache(maxsize=256)
def table(name: str, params: tuple[Any, ...], channels: int) -> npt.NDArray[np.uint8]:
    """The op's table, uint8 [channels, 256], read-only; raises what Pillow raises for such parameters."""
    op = OPS[name]
    assert isinstance(op, LutOp), f"{name} is no lookup table"
    made = np.asarray(op.levels(all_levels(channels), params)).reshape(256, channels)
    return _read_only(np.ascontiguousarray(made.T))


@cache
def all_levels(channels: int) -> Image.Image:
    """A picture of all 256 levels, the same in each channel; not to be changed."""
    return Image.fromarray(_LEVELS if channels == 1 else np.repeat(_LEVELS[:, :, None], channels, 2))


@lru_cache(maxsize=256)
def towards(grey: int, factor: float, channels: int) -> npt.NDArray[np.uint8]:
    """The table of a blend with one grey: ``grey + factor * (level - grey)`` in Pillow's arithmetic."""
    flat = Image.new("L", (16, 16), grey)
    made = np.asarray(Image.blend(flat, all_levels(1), factor)).reshape(1, 256)
    return _read_only(np.repeat(made, channels, 0))


def composed(first: npt.NDArray[np.uint8] | None, then: npt.NDArray[np.uint8] | None) -> npt.NDArray[np.uint8] | None:
    """The table of one look-up after another; None stands for a table that changes nothing."""
    if first is None or then is None:
        return then if first is None else first
    return _read_only(np.take_along_axis(then, first.astype(np.intp), axis=1))


def before(table: npt.NDArray[np.uint8], colour: tuple[int, ...]) -> tuple[int, ...] | None:
    """A colour that the table maps to this one; None if there is none."""
    found = [np.flatnonzero(levels == level) for levels, level in zip(table, colour, strict=True)]
    return tuple(int(places[0]) for places in found) if all(map(len, found)) else None


def _read_only(array: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    array.flags.writeable = False
    return array
