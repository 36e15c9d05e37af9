"""A plan of rows on the host: what stands for an image on the way is a row of numbers.

Of files the region is decoded and one compiled call makes the values; pictures of one array are one call for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from accel.backends.cpu import passes, plane_shares, shares, stages
from accel.backends.cpu.stages import ValueTable
from accel.backends.shared.pixels import Pixels
from accel.ops.resample import SUPPORT
from accel.planning.column_fields import SIZE, START, WINDOW, WINDOW_STEP
from accel.planning.columns import ColumnPlan, Columns
from accel.planning.plan import Decode
from accel.rows import Numbers, Pictures
from accel.sources import PicturesApart, Unread, even
from accel.system.memory import Scratch

Read = Callable[[Decode], Pixels]
Target = npt.NDArray[Any]
Work = Callable[[], "Iterable[Task] | None"]
Task = tuple[int, Work]
"""The first image that it computes, and the work, which gives more of it that it leaves."""

_AT_LEAST, _IN_CACHE = 16, 4
"""Pictures that a thread takes at a time; and of those that it reads, so that they are still in a core's own cache."""

_pixels = Scratch()


Shared = shares.Shared | plane_shares.Shared
"""Images of a batch that threads take together, in compiled calls."""


def tasks(
    plan: ColumnPlan, target: Target, read: Read, threads: int, share: Callable[[], Sequence[Shared]]
) -> Iterator[Task] | None:
    """The work that computes a plan into the bits of its result; None where its rows are to be run one by one.

    ``read`` gives the pixels of a decode; of its items it looks at their positions. ``share``: says what of its files
    threads take together.
    """
    columns = plan.columns
    if columns.resample in SUPPORT and not stages.resizes_as_pillow():
        return None
    fills = stages.colours(() if columns.fill is None else (columns.fill,), columns.channels)
    run = _Run(columns, fills, stages.value_table(columns.table), target, not plan.interleaved)
    pictures, channels = columns.rows.sources, columns.channels
    if isinstance(pictures, Pictures):
        pictures = pictures.apart()
    if isinstance(pictures, PicturesApart) and (pictures.mode == "RGB") == (channels == 3):
        return run.of_pictures(pictures, plan.shape, threads)
    if isinstance(pictures, Unread) and (pictures.header.mode == "RGB") == (channels == 3):
        return run.of_unread(pictures, plan, read)
    return run.of_files(plan, read, threads, share())


class _Run:
    def __init__(self, columns: Columns, fills: Pixels, values: ValueTable, target: Target, planar: bool) -> None:
        self._columns, self._fills, self._values, self._target, self._planar = columns, fills, values, target, planar
        self._all = target.reshape(-1)  # of images of several sizes there is no other

    def of_pictures(self, pictures: PicturesApart, shape: tuple[int, ...], threads: int) -> Iterator[Task]:
        columns, count = self._columns, len(pictures)
        axes = columns.axes.copy()
        axes[..., START] += columns.boxes[:, :2].T  # onto the whole picture
        rows, cols = [(axis, _windows(axis, length)) for axis, length in zip(axes, shape[2:], strict=True)]
        step = max(-(-count // threads), _AT_LEAST)
        for first in range(0, count, step):
            which = range(first, min(first + step, count))
            yield first, partial(self._pictures, pictures, which, rows, cols)

    def _pictures(self, pictures: PicturesApart, which: range, rows: Any, cols: Any) -> None:
        columns, (table, factors) = self._columns, self._values
        given = rows, cols, columns.resample, columns.rows_first, self._fills, table
        passes.run_batch(pictures.pixels, pictures.parts, which, *given, self._target, self._planar, factors=factors)

    def of_unread(self, pictures: Unread, plan: ColumnPlan, read: Read) -> Iterator[Task]:
        columns, shape = self._columns, plan.shape[2:]
        axes = columns.axes.copy()
        axes[..., START] += columns.boxes[:, :2].T
        both = [(axis, _windows(axis, length)) for axis, length in zip(axes, shape, strict=True)]
        for first in range(0, len(pictures), _IN_CACHE):
            which = range(first, min(first + _IN_CACHE, len(pictures)))
            yield first, partial(self._unread, pictures, which, both, plan, read)

    def _unread(self, pictures: Unread, which: range, both: Any, plan: ColumnPlan, read: Read) -> Iterator[Task] | None:
        columns, (table, factors), header = self._columns, self._values, pictures.header
        shape = len(which), header.height, header.width, columns.channels
        pixels = _pixels.take(math.prod(shape))
        part = slice(which.start, which.stop)
        if not pictures.read(which, pixels.reshape(shape)):
            return self._each(plan, read, which)
        rows, cols = [(axis[part], windows[part]) for axis, windows in both]
        given = rows, cols, columns.resample, columns.rows_first[part], self._fills, table
        target, parts = self._target[part], even(*shape)
        passes.run_batch(pixels, parts, range(len(which)), *given, target, self._planar, factors=factors)
        return None

    def of_files(self, plan: ColumnPlan, read: Read, threads: int, shared: Sequence[Shared]) -> Iterator[Task]:
        others = set(range(plan.shape[0]))
        for some in shared:
            others &= set(some.others)
            for _ in range(min(threads, len(some))):
                yield 0, partial(self._share, plan, read, some)
        yield from self._each(plan, read, sorted(others))

    def _share(self, plan: ColumnPlan, read: Read, shared: Shared) -> Iterator[Task]:
        left = shared.run((self._fills, *self._values), self._all, self._planar)
        return self._each(plan, read, left)

    def _each(self, plan: ColumnPlan, read: Read, positions: Iterable[int]) -> Iterator[Task]:
        (rows, columns), order = self._columns.axes, self._columns.rows_first
        for each in positions:
            axes = rows[each].tolist(), columns[each].tolist(), bool(order[each])
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


def _windows(axis: Numbers, length: int) -> npt.NDArray[np.int32]:
    """What each image's window shows, int32 [images, length]."""
    which = axis[:, [SIZE, WINDOW, WINDOW_STEP]]
    if len(axis) > 1 and (which == which[0]).all():
        return np.repeat(_window(length, *which[0].tolist())[None], len(axis), 0)
    shown = axis[:, WINDOW, None] + axis[:, WINDOW_STEP, None] * np.arange(length)
    return np.where((shown < 0) | (shown >= axis[:, SIZE, None]), -1, shown).astype(np.int32)


@lru_cache(maxsize=1024)
def _window(length: int, size: int, start: int, step: int) -> npt.NDArray[np.int32]:
    shown: npt.NDArray[np.int32] = _windows(np.array([[0, 0, 0, size, start, step]]), length)[0]
    return shown
