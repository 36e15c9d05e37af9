"""Running plans of rows on the host: each image is a row of numbers.

Threads share what compiled code reads (``shares``); pictures in one array are run in one call. Of any other image the
region is read, and one call makes the values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from accel.backends.cpu import passes, stages
from accel.backends.cpu.shares import Share
from accel.backends.cpu.stages import ValueTable
from accel.backends.shared.pixels import Pixels
from accel.ops.resample import SUPPORT
from accel.planning.column_fields import START
from accel.planning.columns import ColumnPlan, Columns
from accel.planning.plan import Decode
from accel.recipes.rows import Numbers
from accel.recipes.sources import PicturesApart

Read = Callable[[Decode], Pixels]
Target = npt.NDArray[Any]
Work = Callable[[], "Iterable[Task] | None"]
Task = tuple[int, Work]
"""The first image that a task computes, and its work, which returns further tasks for what it leaves."""


def tasks(
    plan: ColumnPlan, target: Target, read: Read, threads: int, shares: Callable[[], Sequence[Share]]
) -> Iterator[Task] | None:
    """The tasks that compute a plan into the bits of its result; None if its rows must be run one by one.

    ``read``: returns the pixels of a decode, of whose items it uses only the positions. ``shares``: returns the images
    that threads process together.
    """
    columns = plan.columns
    if columns.resample in SUPPORT and not stages.resizes_as_pillow():
        return None
    fills = stages.colours(() if columns.fill is None else (columns.fill,), columns.channels)
    run = _Run(columns, fills, stages.value_table(columns.table), target, not plan.interleaved)
    pictures = columns.rows.sources
    if isinstance(pictures, PicturesApart) and (pictures.mode == "RGB") == (columns.channels == 3):
        return run.of_pictures(pictures, threads)
    return run.of_files(plan, read, threads, shares())


_AT_LEAST = 16
"""The least number of pictures that a thread takes at a time."""


class _Run:
    def __init__(self, columns: Columns, fills: Pixels, values: ValueTable, target: Target, planar: bool) -> None:
        self._columns, self._fills, self._values, self._target, self._planar = columns, fills, values, target, planar
        self._all = target.reshape(-1)  # images of several sizes have no other shape

    def of_pictures(self, pictures: PicturesApart, threads: int) -> Iterator[Task]:
        columns, count = self._columns, len(pictures)
        axes = columns.axes.copy()
        axes[..., START] += columns.boxes[:, :2].T  # onto the whole picture
        step = max(-(-count // threads), _AT_LEAST)
        for first in range(0, count, step):
            which = range(first, min(first + step, count))
            yield first, partial(self._pictures, pictures, which, axes)

    def _pictures(self, pictures: PicturesApart, which: range, axes: Numbers) -> None:
        columns, (table, factors), fills = self._columns, self._values, self._fills
        parts = np.column_stack([pictures.parts, columns.rows_first])
        job = passes.Job(which.start, which.stop, columns.resample, self._planar)
        passes.run_batch(pictures.pixels.reshape(-1), parts, axes, job, fills, table, factors, self._target)

    def of_files(self, plan: ColumnPlan, read: Read, threads: int, shares: Sequence[Share]) -> Iterator[Task]:
        others = set(range(plan.shape[0]))
        for share in shares:
            others &= set(share.regions.others)
            for _ in range(min(threads, len(share))):
                yield 0, partial(self._share, plan, read, share)
        yield from self._each(plan, read, sorted(others))

    def _share(self, plan: ColumnPlan, read: Read, share: Share) -> Iterator[Task]:
        left = share.run((self._fills, *self._values), self._all, self._planar)
        return self._each(plan, read, left)

    def _each(self, plan: ColumnPlan, read: Read, positions: Iterable[int]) -> Iterator[Task]:
        both, order = self._columns.axes, self._columns.rows_first
        for each in positions:
            axes = both[0, each].tolist(), both[1, each].tolist(), bool(order[each])
            yield each, partial(self._file, each, read, plan.source(each), *axes)

    def _file(self, position: int, read: Read, wanted: Decode, row: Any, col: Any, order: bool) -> None:
        columns, (table, factors) = self._columns, self._values
        pixels = read(wanted)
        if not pixels.flags.c_contiguous:
            pixels = np.ascontiguousarray(pixels)
        planar, (begin, height, width) = self._planar, columns.parts[position].tolist()
        shape = (columns.channels, height, width) if planar else (height, width, columns.channels)
        out = self._all[begin : begin + math.prod(shape)].reshape(shape)
        axes = _axis(height, *row), _axis(width, *col)
        passes.run_ordered(pixels, *axes, columns.resample, order, self._fills, table, factors, out, planar)


def _axis(shown: int, start: int, step: int, length: int, size: int, window: int, window_step: int) -> passes.Axis:
    return passes.Axis(start, step, length, 0.0, length, size, _window(shown, size, window, window_step))


@lru_cache(maxsize=1024)
def _window(length: int, size: int, start: int, step: int) -> npt.NDArray[np.int32]:
    """The positions ``start + step * i`` that a window shows, int32 [length]; -1 for those outside [0, size)."""
    shown = start + step * np.arange(length)
    return np.where((shown < 0) | (shown >= size), -1, shown).astype(np.int32)
