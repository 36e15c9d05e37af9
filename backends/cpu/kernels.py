"""The CPU backend's kernel: crop, resize, flip, pad, value table, layout and dtype in one call.

An image is read once and its output written once.  In between there are only the rows of one pass of the resize and
one finished row, in a workspace that each thread keeps.  The calls hold no lock and run in any number of threads.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit, types

from accel.ops.resample import rows_first

from .kernel_blocks import NO_FACTORS, factors
from .kernel_emit import emit_image
from .kernel_rows import gather_image
from .kernel_weights import weigh

MOST_RETAINED = 16 << 20
"""A thread keeps a workspace of up to this many bytes."""


class Axis(NamedTuple):
    """One axis of an image: a view of the source, resampled, then shown through a window.

    Position p of the view, below ``length``, is source position ``start + step * p`` (step 1 or -1).  The view is
    resampled to ``size`` positions, or left alone where ``size == length``.  ``window`` is C-contiguous int32: the
    resampled position each output position shows, or -1 - i for fill colour i.
    """

    start: int
    step: int
    length: int
    size: int
    window: npt.NDArray[np.int32]


def emit(
    src: npt.NDArray[np.uint8],
    rows: Axis,
    cols: Axis,
    resample: int,
    fills: npt.NDArray[np.uint8],
    table: npt.NDArray[Any],
    out: npt.NDArray[Any],
    planar: bool,
    *,
    scale: npt.NDArray[np.float32] | None = None,
) -> None:
    """View, resample and window both axes of ``src`` and write ``table[c, value]`` to ``out``.

    All arrays are C-contiguous.

    Args:
        src: uint8 [h, w, C], C in 1, 3, 4; only the positions that something shown depends on need to lie inside.
        rows: the vertical axis.
        cols: the horizontal axis.
        resample: Pillow's code of the filter (1 Lanczos, 2 bilinear, 3 bicubic, 4 box, 5 Hamming), or one of
            ``resample.Aten``.
        fills: uint8 [F, C]; where row and column both name a colour, the lower code wins.
        table: [C, 256] of uint8, uint16, uint32 or uint64: the bit patterns of the output values.
        out: ``table``'s dtype, [C, rows, cols] if ``planar``, else [rows, cols, C].
        planar: the layout of ``out``.
        scale: the table's ``arithmetic_of``, or ``NO_FACTORS`` to do without; None: it is looked for.

    Raises:
        ValueError: shapes, codes, positions or the filter do not fit; nothing was written.
        TypeError: a dtype is wrong or an array is not C-contiguous.
    """
    kernel = _emit_for(out.dtype)
    order = rows_first(resample, rows.length, cols.length, rows.size, cols.size)
    if scale is None:
        scale = arithmetic_of(table)
    memory = _workspace.memory
    status = kernel(src, *rows, *cols, resample, order, fills, table, scale, out, planar, memory)
    if status > 0:
        memory = np.empty(status, np.uint8)
        if status <= MOST_RETAINED:
            _workspace.memory = memory
        status = kernel(src, *rows, *cols, resample, order, fills, table, scale, out, planar, memory)
    if status:
        shapes = [array.shape for array in (src, fills, table, out)]
        raise ValueError(f"arguments do not fit together: {rows=}, {cols=}, {resample=}, {planar=}, {shapes=}")


def arithmetic_of(table: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Arithmetic that may stand in for a table, where there is some; the search takes longer than an image."""
    return factors(table.tobytes(), len(table)) if table.dtype == np.uint32 else NO_FACTORS


def gather(
    src: npt.NDArray[np.uint8],
    rows: npt.NDArray[np.int32],
    cols: npt.NDArray[np.int32],
    fills: npt.NDArray[np.uint8],
    out: npt.NDArray[np.uint8],
) -> None:
    """``out[y, x] = src[rows[y], cols[x]]``, or a colour of ``fills`` where a code is negative.

    All arrays are C-contiguous: ``src`` uint8 [h, w, C], ``out`` uint8 [n_rows, n_cols, C], ``fills`` uint8 [F, C],
    ``rows`` and ``cols`` int32.  -1 - i is fill colour i; the lower of two negative codes wins.

    Raises:
        ValueError: shapes or codes do not fit; nothing was written.
        TypeError: a dtype is wrong or an array is not C-contiguous.
    """
    if _compiled_gather()(src, rows, cols, fills, out):
        raise ValueError(f"codes or shapes do not fit: {src.shape=}, {fills.shape=}, {out.shape=}")


def weigh_axis(
    resample: int, length: int, size: int, first: int, bounds: npt.NDArray[np.int32], weights: npt.NDArray[np.int32]
) -> int:
    """The weights of some resampled positions of an axis, from ``first`` on, for kernels that run elsewhere.

    Args:
        resample, length, size: a filter, and the axis' positions before and after it.
        first: the first resampled position.
        bounds: int32 [2, count], filled with first taps and numbers of taps.
        weights: int32 [most taps, count], filled with fixed-point weights up to each number of taps.

    Returns:
        How many bits of a weight are after the binary point.
    """
    taps, count = weights.shape
    memory = np.empty(4 * (taps * (count + 2) + 2 * count), np.uint8)  # kernel_weights.weights_size
    return _compiled_weigh()(resample, length, size, first, bounds, weights, memory)


def warm_up() -> None:
    """Compile, or load from numba's cache, what most runs need, so that forked workers inherit it."""
    pixel, window, fills = np.zeros((1, 1, 3), np.uint8), np.zeros(1, np.int32), np.zeros((0, 3), np.uint8)
    axis = Axis(0, 1, 1, 1, window)
    for dtype in (np.uint8, np.uint32):
        emit(pixel, axis, axis, 0, fills, np.zeros((3, 256), dtype), np.empty((1, 1, 3), dtype), False)
    gather(pixel, window, window, fills, pixel.copy())


class _Workspace(threading.local):
    """Memory that a thread's calls use one after the other, so that they need not allocate."""

    def __init__(self) -> None:
        self.memory = np.empty(0, np.uint8)


_workspace = _Workspace()


def _array(dtype: Any, ndim: int, *, readonly: bool = True) -> Any:
    """A C-contiguous array; one declared read-only may be writable as well."""
    return types.Array(dtype, ndim, "C", readonly=readonly)


_BYTES, _IMAGE, _CODES = _array(types.uint8, 2), _array(types.uint8, 3), _array(types.int32, 1)
_AXIS = (types.int64, types.int64, types.int64, types.int64, _CODES)
_COMPILE = {"nogil": True, "cache": True, "error_model": "numpy"}


@functools.cache
def _sources() -> str:
    """A digest of this folder's compiled code.

    Numba's cache notices changes in the file of the function it compiles, and in the values that function encloses,
    but not in the files of functions it calls: enclosing this covers them.
    """
    folder = Path(__file__).parent
    files = [folder / "vector.py", *sorted(folder.glob("kernel*.py"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


@functools.cache
def _emit_for(dtype: np.dtype[Any]) -> Callable[..., int]:
    """``emit_image`` for one dtype of table and output."""
    sources = _sources()

    def entry(  # type: ignore[no-untyped-def]
        src, y0, dy, y_length, y_size, rows, x0, dx, x_length, x_size, cols, resample, order, fills, table, scale,
        out, planar, scratch,
    ):  # fmt: skip
        assert sources
        return emit_image(
            src, y0, dy, y_length, y_size, rows, x0, dx, x_length, x_size, cols, resample, order, fills, table, scale,
            out, planar, scratch,
        )  # fmt: skip

    value = getattr(types, dtype.name)
    signature = types.int64(
        _IMAGE, *_AXIS, *_AXIS, types.int64, types.boolean, _BYTES, _array(value, 2), _array(types.float32, 2),
        _array(value, 3, readonly=False), types.boolean, _array(types.uint8, 1, readonly=False),
    )  # fmt: skip
    kernel: Callable[..., int] = njit(signature, **_COMPILE)(entry)
    return kernel


@functools.cache
def _compiled_gather() -> Callable[..., int]:
    sources = _sources()

    def entry(src, rows, cols, fills, out):  # type: ignore[no-untyped-def]
        assert sources
        return gather_image(src, rows, cols, fills, out)

    signature = types.int64(_IMAGE, _CODES, _CODES, _BYTES, _array(types.uint8, 3, readonly=False))
    kernel: Callable[..., int] = njit(signature, **_COMPILE)(entry)
    return kernel


@functools.cache
def _compiled_weigh() -> Callable[..., int]:
    sources = _sources()

    def entry(resample, length, size, first, bounds, weights, memory):  # type: ignore[no-untyped-def]
        assert sources
        found, made, bits = weigh(resample, length, size, first, bounds.shape[1], memory.ctypes.data)
        for i in range(bounds.shape[1]):
            bounds[0, i], bounds[1, i] = found[i, 0], found[i, 1]
            for t in range(found[i, 1]):
                weights[t, i] = made[i, t]
        return bits

    out = _array(types.int32, 2, readonly=False)
    memory = _array(types.uint8, 1, readonly=False)
    signature = types.int64(types.int64, types.int64, types.int64, types.int64, out, out, memory)
    kernel: Callable[..., int] = njit(signature, **_COMPILE)(entry)
    return kernel
