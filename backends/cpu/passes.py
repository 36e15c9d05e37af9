"""A fused pass on the host: crop, resize, flip, pad, value table, layout and dtype in one call.

An image is read once and its output written once.  In between are only the rows of one pass of the resize and one
finished row, in a workspace that each thread keeps.  The calls hold no lock and run in any number of threads.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from accel.backends.cpu import pass_fields
from accel.backends.cpu.normalization import NO_FACTORS, find_factors
from accel.ops.resample import rows_first
from accel.system.native import units

_SOURCES = "backends/cpu/pass_*.py", "backends/cpu/simd.py", "backends/shared/coefficient_kernels.py"
_SHARED = "backends/shared/numba_memory.py", "system/native/simd.py", "planning/column_fields.py"
UNIT = units.Unit("passes", *_SOURCES, *_SHARED, seconds=4.5)
RUN = UNIT.function("backends.cpu.pass_image", "run_pass", pass_fields.SIGNATURE)
TAKE_ROWS = UNIT.function("backends.cpu.pass_image", "take_rows", pass_fields.TAKE_ROWS)
_run_batch = UNIT.function(
    "backends.cpu.pass_batch",
    "run_batch",
    "u1[1] i8[2] int int i8[3] i4[2]w int u1[1] u1[2] any[2] int f4[2] any[4]w bool u1[1]w",
)

MOST_RETAINED = 16 << 20
"""The most bytes of workspace that a thread keeps."""


class Axis(NamedTuple):
    """One axis of an image: a view of the source, resampled, then shown through a window.

    Position p of the view, below ``length``, is source position ``start + step * p`` (step 1 or -1).  ``span`` of the
    view, from ``begin`` on, is resampled to ``size`` positions, or not at all if it begins at 0 and equals ``size``.
    ``window`` is C-contiguous int32: the resampled position each output position shows, or -1 - i for fill colour i.
    """

    start: int
    step: int
    length: int
    begin: float
    span: float
    size: int
    window: npt.NDArray[np.int32]


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
    item = _itemsize(table, out)
    _with_workspace(RUN, src, *rows, *cols, resample, order, fills, table, item, factors, out, planar, pass_fields.ALL)


def run_batch(
    pictures: npt.NDArray[np.uint8],
    parts: npt.NDArray[np.int64],
    which: range,
    axes: npt.NDArray[np.int64],
    resample: int,
    order: npt.NDArray[np.bool_],
    fills: npt.NDArray[np.uint8],
    table: npt.NDArray[Any],
    out: npt.NDArray[Any],
    planar: bool,
    *,
    factors: npt.NDArray[np.float32],
) -> None:
    """``run`` for some of many pictures, in one call, to their places in ``out`` [images, ...].

    Args:
        pictures: uint8 [bytes]. parts: [images, 3], where in it each picture [h, w, C] begins, its h and w.
        which: the numbers of the pictures to run.
        axes: the axes (``accel.planning.columns``) of every picture, [2, images, 6], as views of the whole picture.
        order: ``resample.rows_first`` of every picture.

    Raises:
        ValueError, TypeError: as ``run``; some pictures may have been written.
    """
    item = _itemsize(table, out)
    windows = np.empty((2, max(out.shape[1:])), np.int32)
    given = pictures, parts, which.start, which.stop, axes, windows, resample, order.view(np.uint8)
    _with_workspace(_run_batch, *given, fills, table, item, factors, out, planar)


def _itemsize(table: npt.NDArray[Any], out: npt.NDArray[Any]) -> int:
    dtype = out.dtype
    if (table.dtype is not dtype and table.dtype != dtype) or dtype.kind != "u":
        raise TypeError(f"table and out must be of one unsigned dtype, not {table.dtype} and {dtype}")
    return dtype.itemsize


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
