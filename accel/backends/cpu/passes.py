"""A fused pass on the host: crop, resize, flip, pad, value table, layout and dtype in one call.

An image is read once and its output written once.  In between are only the rows of one pass of the resize and one
finished row, in a workspace that each thread keeps.  The calls hold no lock and run in any number of threads.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from accel.backends.cpu import pass_fields
from accel.backends.cpu.pass_fields import Axis
from accel.ops.resample import rows_first
from accel.system.native import units

_SOURCES = "backends/cpu/pass_*.py", "backends/cpu/simd.py", "backends/shared/coefficient_kernels.py"
_SHARED = "backends/shared/numba_memory.py", "system/native/simd.py"
UNIT = units.Unit("passes", *_SOURCES, *_SHARED, seconds=4.5)
RUN = UNIT.function("backends.cpu.pass_image", "run_pass", pass_fields.SIGNATURE)
TAKE_ROWS = UNIT.function("backends.cpu.pass_image", "take_rows", pass_fields.TAKE_ROWS)
_PLACE_ROWS = "u1[3] i8[1] i8[2] i8[2] i8[2] i8[2] any[2] f4[2] any[1]w u1[1]w"
_place_rows = UNIT.function("backends.cpu.pass_places", "place_rows", _PLACE_ROWS)

MOST_RETAINED = 16 << 20
"""The most bytes of workspace that a thread keeps."""


def run(
    src: npt.NDArray[np.uint8],
    rows: Axis,
    cols: Axis,
    resample: int,
    fills: npt.NDArray[np.uint8],
    table: npt.NDArray[Any],
    out: npt.NDArray[Any],
    planar: bool,
    *,
    factors: npt.NDArray[np.float32] | None = None,
) -> None:
    """View, resample and window both axes of ``src`` and write ``table[c, value]`` to ``out``.

    All arrays are C-contiguous.

    Args:
        src: uint8 [h, w, C], C in 1, 3, 4; only the positions that the output depends on must lie inside.
        rows: the vertical axis.
        cols: the horizontal axis.
        resample: Pillow's code of the filter (1 Lanczos, 2 bilinear, 3 bicubic, 4 box, 5 Hamming), or one of
            ``resample.Aten``.
        fills: uint8 [F, C]; where row and column both name a colour, the lower code wins.
        table: [C, 256] of uint8, uint16, uint32 or uint64: the bit patterns of the output values.
        out: ``table``'s dtype, [C, rows, cols] if ``planar``, else [rows, cols, C].
        planar: the layout of ``out``.
        factors: the table's ``factors_of``, or ``NO_FACTORS`` to use the table; None to look for factors.

    Raises:
        ValueError: shapes, codes, positions or the filter do not fit; nothing was written.
        TypeError: a dtype is wrong or an array is not C-contiguous.
    """
    order = rows_first(resample, rows.length, cols.length, rows.size, cols.size)
    if factors is None:
        factors = factors_of(table)
    run_ordered(src, rows, cols, resample, order, fills, table, factors, out, planar)


def run_ordered(
    src: npt.NDArray[np.uint8],
    rows: Axis,
    cols: Axis,
    resample: int,
    order: bool,
    fills: npt.NDArray[np.uint8],
    table: npt.NDArray[Any],
    factors: npt.NDArray[np.float32],
    out: npt.NDArray[Any],
    planar: bool,
) -> None:
    """``run`` with a given order of the axes (``order``: rows first) and given factors."""
    if (table.dtype is not out.dtype and table.dtype != out.dtype) or out.dtype.kind != "u":
        raise TypeError(f"table and out must be of one unsigned dtype, not {table.dtype} and {out.dtype}")
    values = fills, table, out.dtype.itemsize, factors, out, planar, pass_fields.ALL
    _with_workspace(RUN, src, *rows, *cols, resample, order, *values)


def place_rows(*given: Any) -> None:
    """``pass_places.place_rows`` without its last argument.

    Raises:
        ValueError: arguments do not fit together; nothing was written.
    """
    _with_workspace(_place_rows, *given)


def _with_workspace(function: units.Function, *given: Any) -> None:
    memory = workspace.memory
    while (status := function(*given, memory)) > 0:  # the bytes of workspace that it needs
        memory = larger(status)
    if status:
        described = [each.shape if isinstance(each, np.ndarray) else each for each in given]
        raise ValueError(f"arguments do not fit together: {described}")


def larger(size: int) -> npt.NDArray[np.uint8]:
    """Make a workspace of ``size`` bytes, which the thread keeps unless it is larger than ``MOST_RETAINED``."""
    memory = np.empty(size, np.uint8)
    if size <= MOST_RETAINED:
        workspace.memory = memory
    return memory


def factors_of(table: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """The factors of arithmetic that may replace a table (``find_factors``); the search takes longer than an image."""
    return find_factors(table.tobytes(), len(table)) if table.dtype == np.uint32 else NO_FACTORS


class _Workspace(threading.local):
    """Memory that all calls of a thread reuse, so that they need not allocate."""

    memory = np.empty(0, np.uint8)


workspace = _Workspace()


# -- arithmetic that may replace a value table --------------------------------------------------------------------
#
# That of ToTensor with Normalize, ``(v / 255 - mean) / std`` in float32. Each division is computed as a multiplication
# by a reciprocal of twice the precision, or of single precision where torchvision itself multiplies (v2's ToDtype).
# ``pass_rows.stands_in`` compares the result with the table.

NO_FACTORS = np.zeros((0, 4), np.float32)


def _reciprocal(divisor: np.float32) -> tuple[np.float32, np.float32]:
    """1 / divisor as the sum of two float32."""
    exact = 1.0 / float(divisor)
    high = np.float32(exact)
    return high, np.float32(exact - float(high))


_LEVELS = np.arange(256, dtype=np.float32)
_SCALINGS = (
    (_LEVELS / np.float32(255), *_reciprocal(np.float32(255))),
    (_LEVELS * np.float32(1 / 255), np.float32(1 / 255), np.float32(0)),
    (_LEVELS, np.float32(1), np.float32(0)),  # transformers multiplies mean and std instead
)


def _near(value: float) -> npt.NDArray[np.float32]:
    """Zero, and the five float32 around ``value``."""
    bits = np.float32(value).view(np.int32) + np.arange(-2, 3, dtype=np.int32)
    return np.append(bits.view(np.float32), np.float32(0))


@functools.lru_cache(maxsize=64)
def find_factors(table: bytes, channels: int) -> npt.NDArray[np.float32]:
    """Factors float32 [5, 4] that may reproduce a float32 table; [0, 4] if none are found.

    Rows: the two parts of 1 / 255, the mean, the two parts of 1 / std; one column per channel.
    """
    result = np.zeros((5, 4), np.float32)
    for c, values in enumerate(np.frombuffer(table, np.float32).reshape(channels, 256)):
        found = _fit(values)
        if found is None:
            return NO_FACTORS
        result[:, c] = found
    return result


def _fit(values: npt.NDArray[np.float32]) -> tuple[np.float32, ...] | None:
    """Find one channel's factors; None if there are none.

    A straight line through the table gives mean and std to within a few units in the last place.
    """
    if not np.isfinite(values).all() or values[0] == values[255] or not _is_straight(values):
        return None
    for scaled, scale, scale_rest in _SCALINGS:
        slope, intercept = np.polyfit(scaled.astype(np.float64), values.astype(np.float64), 1)
        with np.errstate(all="ignore"):
            means, stds = _near(-intercept / slope)[:, None, None], _near(1 / slope)[:, None]
            fits = np.argwhere((((scaled - means) / stds) == values).all(axis=-1))
        if len(fits):
            mean, std = means[fits[0, 0], 0, 0], stds[fits[0, 1], 0]
            return scale, scale_rest, mean, *_reciprocal(std)
    return None


def _is_straight(values: npt.NDArray[np.float32]) -> bool:
    """Whether a line is worth trying, judging by three points; a colour op's table, new for every image, is no line."""
    first, span = float(values[0]), float(values[255]) - float(values[0])
    return all(abs(first + span * n / 255 - float(values[n])) < 1e-5 * abs(span) for n in (67, 131, 202))
