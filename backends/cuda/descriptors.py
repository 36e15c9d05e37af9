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


def fields(kind: type[np.generic], *names: str) -> list[tuple[str, type[np.generic]]]:
    """Fields of one type for a structure."""
    return [(name, kind) for name in names]


COEFFICIENT_JOB = np.dtype(
    fields(np.uint64, "bounds", "coefficients")
    + fields(np.int32, "resample", "length", "size", "first", "count", "unused")
)

AXIS = np.dtype(
    [
        *fields(np.uint64, "window", "bounds", "coefficients"),
        ("stride", np.int64),
        *fields(np.int32, "start", "step", "first", "count"),
    ]
)

PASS = np.dtype(
    [
        ("source", np.uint64),
        ("origin", np.int64),
        *fields(np.uint64, "target", "table", "fills", "input_lut"),
        ("rows", AXIS),
        ("columns", AXIS),
        *fields(np.int32, "height", "width", "first_block", "across", "itemsize", "planar", "mode", "unused"),
    ]
)

EFFECT = np.dtype(
    [
        *fields(np.uint64, "source", "input_lut", "target", "output_lut", "data"),
        ("pitch", np.int64),
        ("numbers", np.float64, 8),
        *fields(np.int32, "op", "sampling", "rows", "columns", "channels", "height", "width", "output_channels"),
        *fields(np.int32, "first_block", "across", "blocks", "fill"),  # a colour; unsigned fields are addresses
        ("counts", np.int32, 6),
    ]
)

PATCH = np.dtype(
    fields(np.uint64, "target", "values")
    + fields(np.int32, "channels", "height", "width", "top", "left", "rows", "columns")
    + fields(np.int32, "given_rows", "given_columns", "itemsize", "planar", "first_block")
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
    for field in _addresses(items):
        field[...] = (field & np.uint64(_OFFSET)) + table[field >> np.uint64(_SHIFT)]
    return items


def _addresses(items: npt.NDArray[Any]) -> list[npt.NDArray[np.uint64]]:
    """Views of the address fields, which are the unsigned ones."""
    found = []
    for name in items.dtype.names or ():
        field = items[name]
        if field.dtype.names:
            found.extend(_addresses(field))
        elif field.dtype == np.uint64:
            found.append(field)
    return found
