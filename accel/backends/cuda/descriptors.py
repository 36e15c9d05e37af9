"""Descriptors of work for the kernels: structures and sizes declared by their sources, and the addresses in them.

Addresses are not known before memory is allocated, so a schedule has places instead: a region of memory in the high
byte, an offset in the rest. ``execution`` turns them into addresses.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from accel.backends.cuda.declarations import constant, entries, enumerators, structure
from accel.backends.cuda.regions import OFFSET, SHIFT, Region

COEFFICIENT_JOB, PASS = structure("pass.h", "CoefficientJob"), structure("pass.h", "Pass")
EFFECT, PATCH = structure("effects/effect.h", "Effect"), structure("patch.cu", "Patch")
COUNTERS = structure("effects/statistic.h", "Counters").itemsize

MODES = enumerators("pass.h", "Mode")
EFFECT_OPS = enumerators("effects/effect.h", "EffectOp")
STATISTICS = frozenset(entries("effects/effect.h", "STATISTIC_OPS"))

THREADS = constant("shim.h", "THREADS")  # of a block
TILE_ROWS, TILE_COLUMNS = constant("tile.h", "ROWS"), constant("tile.h", "COLUMNS")  # of a fused pass
TILE, MEASURED = constant("effects/filter.h", "TILE"), constant("effects/statistic.h", "MEASURED")  # of effects
LINES = constant("patch.cu", "LINES")


def packer(dtype: np.dtype[Any]) -> Callable[..., bytes]:
    """A function from the values of all fields, in order, to the bytes of such a structure."""
    packed = struct.Struct("<" + _format(dtype))
    assert packed.size == dtype.itemsize, dtype
    return packed.pack


def _format(dtype: np.dtype[Any]) -> str:
    if dtype.names:
        return "".join(_format(dtype[name]) for name in dtype.names)
    base, shape = dtype.subdtype or (dtype, ())
    return f"{math.prod(shape)}{_CODES[base.str[1:]]}"


_CODES = {"u1": "B", "u2": "H", "u4": "I", "u8": "Q", "i2": "h", "i4": "i", "i8": "q", "f4": "f", "f8": "d"}
"""The codes of ``struct`` for NumPy's."""


def place(region: Region, offset: int) -> int:
    """The place of an offset in a region."""
    return region << SHIFT | offset


def offset_of(where: int) -> int:
    """The offset of a place in its region."""
    return where & OFFSET
