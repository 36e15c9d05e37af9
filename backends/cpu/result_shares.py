"""Batches of cached results, shared by threads that each process their images in one compiled call.

Damaged results, which the call leaves, are run as single images.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from accel.backends.cpu import pass_fields as ps
from accel.backends.cpu import passes, shares
from accel.backends.cpu import share_fields as sh
from accel.cache import reading
from accel.cache import reading_fields as rd
from accel.memo.result_pixels import Unread
from accel.native import units
from accel.planning.column_fields import START
from accel.planning.columns import Columns
from accel.system.memory import Scratch

_SOURCES = "backends/cpu/result_share_kernels.py", "cache/reading_fields.py"
UNIT = units.Unit("result_share", *_SOURCES, *shares.STEPS, seconds=1)
_run_result_share = UNIT.function(
    "backends.cpu.result_share_kernels",
    "run_result_share",
    "i8[1]w i8[2] u4[1] i8[1] i8[2] i8[3] u1[1] i8[1]w i8[1]w i8[1]w i8[1]w i4[2]w u1[1]w any[1]w i8[2] int int bool",
)
_pixels = Scratch()


class Shared:
    """The images of a batch that begin with results. ``others``: the places of all images if compiled code cannot read
    the results, else none."""

    def __init__(self, columns: Columns, results: Unread) -> None:
        self.columns, self._results = columns, results
        self._asked = results.asked()
        self._sizes = None if self._asked is None else _bands(columns, results, self._asked)
        self.others = range(len(results)) if self._sizes is None else range(0)
        self.counter = np.zeros(1, np.int64)

    def __len__(self) -> int:
        return len(self._results) - len(self.others)

    def run(self, given: shares.Given, target: npt.NDArray[Any], planar: bool) -> list[int]:
        """Process images until none is left; return the places of those that are left to Python."""
        assert self._asked is not None
        assert self._sizes is not None
        columns, item, (sizes, axes) = self.columns, target.dtype.itemsize, self._sizes
        _, rows, numbers, begins = self._asked
        pixels = _pixels.take(int(sizes.prod(axis=1).max()) * columns.channels)
        reads, fused = reading.call(pixels), shares.pass_call(columns, given, item, planar)
        left, said = np.empty(len(self), np.int64), np.zeros(sh.SAID, np.int64)
        said[sh.CURRENT] = -1
        windows = np.empty((2, max(columns.largest)), np.int32)
        while True:
            _run_result_share(
                self.counter, rows, numbers, begins, sizes, axes,
                columns.rows_first.view(np.uint8), left, said, reads.words, fused.words, windows, pixels, target,
                columns.parts, item, columns.channels, planar,
            )  # fmt: skip
            if said[sh.CURRENT] < 0:
                break
            fused.hold(ps.SCRATCH, passes.larger(int(said[sh.ROOM])))
        self._results.used(int(said[sh.DONE]))
        found: list[int] = left[: said[sh.LEFT]].tolist()
        return found


def _bands(
    columns: Columns, results: Unread, asked: reading.Together
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """Set ``asked`` to the bands of rows that are shown; return the heights and widths of what is read, [images, 2],
    and the axes for that. None if an entry's bands are not as expected."""
    _, rows, numbers, begins = asked
    heights, widths, _ = results.sizes()
    row, counts = widths * columns.channels, rows[:, rd.COUNT]
    ends = begins + 2 * counts  # the places of the parts' ends
    each = np.maximum(numbers[ends] // row, 1)
    top, left, shown, _ = columns.boxes.T
    rows[:, rd.BEGIN], rows[:, rd.END] = top // each, np.minimum(-(-(top + shown) // each), counts)
    first, last = rows[:, rd.BEGIN], rows[:, rd.END]
    begin, end = first * each, np.minimum(last * each, heights)
    if (numbers[ends + last - 1] != end * row).any() or (numbers[ends + first - 1] != begin * row)[first > 0].any():
        return None
    axes = columns.axes.copy()
    axes[0, :, START] += top - begin
    axes[1, :, START] += left
    return np.stack((end - begin, widths), axis=1), axes
