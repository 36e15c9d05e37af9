"""Running plans of rows on the host: each image is a row of numbers.

Threads share what compiled code reads (``shares``). Of any other image the region is read, and one call makes the
values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from accel.backends.cpu import pass_fields, passes, stages
from accel.backends.cpu.shares import Share
from accel.backends.shared.pixels import Pixels
from accel.planning.columns import ColumnPlan
from accel.planning.plan import Decode

Read = Callable[[Decode], Pixels]
Work = Callable[[], "Iterable[Task] | None"]
Task = tuple[int, Work]
"""The first image that a task computes, and its work, which returns further tasks for what it leaves."""


class Run:
    """A plan of rows, computed into the bits of its result.

    Args:
        read: returns the pixels of a decode, of whose items it uses only the positions.
    """

    def __init__(self, plan: ColumnPlan, target: npt.NDArray[Any], read: Read) -> None:
        columns = self._columns = plan.columns
        fills = stages.colours(() if columns.fill is None else (columns.fill,), columns.channels)
        self._plan, self._read, self._planar = plan, read, not plan.interleaved
        self._values = fills, *stages.value_table(columns.table)
        self._all = target.reshape(-1)  # images of several sizes have no other shape

    def tasks(self, threads: int, shares: Sequence[Share]) -> Iterator[Task]:
        """The tasks that compute it; ``shares``: the images that threads process together."""
        others = set(range(self._plan.shape[0]))
        for share in shares:
            others &= set(share.regions.others)
            for _ in range(min(threads, -(-len(share.regions.positions) // share.regions.least))):
                yield 0, partial(self._share, share)
        yield from self._each(sorted(others))

    def _share(self, share: Share) -> Iterator[Task]:
        return self._each(share.run(self._values, self._all, self._planar))

    def _each(self, positions: Iterable[int]) -> Iterator[Task]:
        both, order = self._columns.axes, self._columns.rows_first
        for each in positions:
            axes = both[0, each].tolist(), both[1, each].tolist(), bool(order[each])
            yield each, partial(self._image, each, self._plan.source(each), *axes)

    def _image(self, position: int, wanted: Decode, row: Any, col: Any, order: bool) -> None:
        columns, (fills, table, factors) = self._columns, self._values
        pixels = np.ascontiguousarray(self._read(wanted))
        planar, (begin, height, width) = self._planar, columns.parts[position].tolist()
        shape = (columns.channels, height, width) if planar else (height, width, columns.channels)
        out = self._all[begin : begin + math.prod(shape)].reshape(shape)
        axes = _axis(height, *row), _axis(width, *col)
        passes.run_ordered(pixels, *axes, columns.resample, order, fills, table, factors, out, planar)


def _axis(shown: int, start: int, step: int, length: int, size: int, window: int, window_step: int) -> pass_fields.Axis:
    return pass_fields.Axis(start, step, length, 0.0, length, size, _window(shown, size, window, window_step))


@lru_cache(maxsize=1024)
def _window(length: int, size: int, start: int, step: int) -> npt.NDArray[np.int32]:
    """The positions ``start + step * i`` that a window shows, int32 [length]; -1 for those outside [0, size)."""
    shown = start + step * np.arange(length)
    return np.where((shown < 0) | (shown >= size), -1, shown).astype(np.int32)
