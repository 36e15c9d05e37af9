"""Descriptors of work for the kernels, as NumPy structures: as in ``pass.h``, ``effects/effect.h`` and ``patch.cu``.

Addresses are not known before memory is there, so a schedule is written with places instead: a region of memory in
the high byte, an offset in the rest. ``bind`` turns them into addresses.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

COEFFICIENT_JOB = np.dtype(
    [
        ("bounds", np.uint64),
        ("coefficients", np.uint64),
        ("resample", np.int32),
        ("length", np.int32),
        ("size", np.int32),
        ("first", np.int32),
        ("count", np.int32),
        ("unused", np.int32),
    ]
)

AXIS = np.dtype(
    [
        ("window", np.uint64),
        ("bounds", np.uint64),
        ("coefficients", np.uint64),
        ("stride", np.int64),
        ("start", np.int32),
        ("step", np.int32),
        ("first", np.int32),
        ("count", np.int32),
    ]
)

PASS = np.dtype(
    [
        ("source", np.uint64),
        ("origin", np.int64),
        ("target", np.uint64),
        ("table", np.uint64),
        ("fills", np.uint64),
        ("input_lut", np.uint64),
        ("rows", AXIS),
        ("columns", AXIS),
        ("height", np.int32),
        ("width", np.int32),
        ("first_block", np.int32),
        ("across", np.int32),
        ("itemsize", np.int32),
        ("planar", np.int32),
        ("mode", np.int32),
        ("unused", np.int32),
    ]
)

EFFECT = np.dtype(
    [
        *((name, np.uint64) for name in ("source", "input_lut", "target", "output_lut", "data")),
        ("pitch", np.int64),
        ("numbers", np.float64, 8),
        *((name, np.int32) for name in ("op", "sampling", "rows", "columns", "channels")),
        *((name, np.int32) for name in ("height", "width", "output_channels")),
        *((name, np.int32) for name in ("first_block", "across", "blocks")),
        ("fill", np.int32),  # unsigned fields are addresses
        ("counts", np.int32, 6),
    ]
)

PATCH = np.dtype(
    [
        ("target", np.uint64),
        ("values", np.uint64),
        *((name, np.int32) for name in ("channels", "height", "width", "top", "left", "rows", "columns")),
        *((name, np.int32) for name in ("given_rows", "given_columns", "itemsize", "planar", "first_block")),
    ]
)


def packer(dtype: np.dtype[Any]) -> Callable[..., bytes]:
    """A function of the values of all fields, one after another, to the bytes of such a structure."""
    packed = struct.Struct("<" + _format(dtype))
    assert packed.size == dtype.itemsize, dtype
    return packed.pack


def _format(dtype: np.dtype[Any]) -> str:
    if dtype.names:
        return "".join(_format(dtype[name]) for name in dtype.names)
    base, shape = dtype.subdtype or (dtype, ())
    return f"{math.prod(shape)}{_CODES[base.kind, base.itemsize]}"


_CODES = {("u", 8): "Q", ("i", 8): "q", ("i", 4): "i", ("f", 8): "d"}

COPY, COLUMNS_FIRST, ROWS_FIRST = range(3)
"""``Mode`` of pass.h."""

TILE_ROWS, TILE_COLUMNS = 64, 32
"""Size of a tile of a fused pass (tile.h)."""

TILE = 32
"""Rows and columns of a tile of an effect (effects/filter.h)."""

MEASURED = 1 << 13
"""Pixels of a block that counts (effects/statistic.h)."""

COUNTERS = 4 * (3 * 256 + 1)
"""Bytes of ``Counters`` there."""

LINES = 8
"""Lines of a block of patches (patch.cu)."""

THREADS = 256
"""Threads of a block (shim.h)."""


class Region(IntEnum):
    """Regions of memory that places lie in. NOWHERE: the offset is an address already (or null)."""

    NOWHERE = 0
    UPLOAD = 1  # sent by the host: descriptors, tables, pixels
    SCRATCH = 2  # kept by the kernels for each other
    RESULT = 3


_SHIFT = 56
_OFFSET = (1 << _SHIFT) - 1


def place(region: Region, offset: int) -> int:
    """A place, to be bound."""
    return region << _SHIFT | offset


def offset_of(where: int) -> int:
    """A place's offset in its region."""
    return where & _OFFSET


def bind(items: npt.NDArray[Any], bases: Mapping[Region, int]) -> npt.NDArray[Any]:
    """Replace the places in all address fields by addresses, given those of the regions."""
    table = np.array([bases.get(region, 0) for region in Region], np.uint64)
    for field in _fields(items):
        field[...] = (field & np.uint64(_OFFSET)) + table[field >> np.uint64(_SHIFT)]
    return items


def _fields(items: npt.NDArray[Any]) -> list[npt.NDArray[np.uint64]]:
    """Views of the address fields, which are the unsigned ones."""
    found = []
    for name in items.dtype.names or ():
        field = items[name]
        if field.dtype.names:
            found.extend(_fields(field))
        elif field.dtype == np.uint64:
            found.append(field)
    return found
