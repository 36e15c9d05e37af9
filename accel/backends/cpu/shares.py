"""Batches shared by threads that each process their images in one compiled call, which reads ``regions``.

The images that the call leaves are run as single images.
"""

from __future__ import annotations

import threading
from contextlib import nullcontext
from operator import is_
from time import thread_time
from typing import Any

import numpy as np
import numpy.typing as npt

from accel.backends.cpu import pass_fields as ps
from accel.backends.cpu import passes
from accel.backends.cpu import share_fields as sh
from accel.backends.cpu.regions import RUN_SHARE, TAKE_BAND, Block, Regions
from accel.backends.shared.pixels import Pixels
from accel.planning.columns import Columns
from accel.runtime import read
from accel.runtime.memo import cached
from accel.system.fork import cached_property
from accel.system.native import units
from accel.system.native.calls import Call
from accel.system.timing.clocks import DECODE, TRANSFORM
from accel.system.timing.compiled_stage import CLOCK, compiled_stage

Values = tuple[Pixels, npt.NDArray[Any], npt.NDArray[np.float32]]
"""Fill colours, table and factors of a pass."""


class Share:
    """The images of a batch whose regions are read by compiled code."""

    def __init__(self, columns: Columns, regions: Regions) -> None:
        self._columns, self.regions = columns, regions
        self._counter = np.zeros(1, np.int64)

    def run(self, values: Values, target: npt.NDArray[Any], planar: bool) -> list[int]:
        """Process images until none is left; return the places of those that are left to Python.

        Any number of threads may run it at the same time. ``target``: the bits of all results, [values].
        """
        columns, regions, item = self._columns, self.regions, target.dtype.itemsize
        count = len(regions.positions)
        pixels, fused = read.room.take(regions.room), _last.pass_call(columns, values, item, planar)
        left, begun = np.empty(count, np.int64), thread_time() if cached.in_use else 0.0
        stage = compiled_stage(DECODE, TRANSFORM, count) if regions.decodes else nullcontext(_NO_TIMES)
        with stage as times:
            block = Block(
                _last.words,
                {
                    sh.POSITIONS: regions.positions,
                    sh.BOXES: regions.boxes,
                    sh.AXES: regions.axes,
                    sh.ROWS_FIRST: columns.rows_first,
                    sh.PARTS: columns.parts,
                    sh.TARGET: target,
                    sh.PIXELS: pixels,
                    sh.WINDOWS: np.empty(2 * max(columns.largest), np.int32),
                    sh.TIMES: times,
                    sh.LEFT: left,
                    sh.PASS_CALL: fused,
                    sh.TAKE_ROWS: _last.take_rows,
                    sh.SINK: _last.sink,
                    sh.COUNT: count,
                    sh.IMAGES: len(columns.boxes),
                    sh.CHANNELS: columns.channels,
                    sh.ITEM: item,
                    sh.PLANAR: planar,
                    sh.CLOCK: CLOCK if len(times) else -1,
                    sh.CURRENT: -1,
                    **regions.fields(pixels),
                },
            )
            reader = _last.reader_call(regions.reader)
            while True:
                RUN_SHARE(self._counter, block.words, reader.words)
                if block.words[sh.CURRENT] < 0:
                    break
                memory, room = block.words[[sh.MEMORY, sh.ROOM]].tolist()
                if memory == sh.PASS:
                    fused.hold(ps.SCRATCH, passes.larger(room))
                else:
                    regions.grow(block, memory, room)
        found: list[int] = left[: block.words[sh.COUNT_LEFT]].tolist()
        regions.finish(block, found, 1e6 * (thread_time() - begun) if cached.in_use else 0.0)
        return found


_NO_TIMES = np.zeros((0, 2, 2), np.int64)


class _Last(threading.local):
    """A thread's memory for its block, and its calls, kept from batch to batch."""

    def __init__(self) -> None:
        self._made_of: tuple[Any, ...] = ()
        self._call: Call | None = None
        self._readers: dict[units.Function, Call] = {}
        self.words = np.zeros(sh.WORDS, np.int64)

    @cached_property
    def take_rows(self) -> Call:
        return Call(passes.TAKE_ROWS, 0, 0)

    @cached_property
    def sink(self) -> Call:
        return Call(TAKE_BAND, 0, 0, self.words)

    def reader_call(self, reader: units.Function) -> Call:
        """The call of a region reader with the thread's block, in which compiled code sets the image's number."""
        if reader not in self._readers:
            self._readers[reader] = Call(reader, 0, self.words)
        return self._readers[reader]

    def pass_call(self, columns: Columns, values: Values, item: int, planar: bool) -> Call:
        """The call of the pass for a plan's images, in which compiled code sets the pixels, the axes and the output.

        It is the last one if that was made of the same objects.
        """
        made_of = columns.resample, *values, item, planar
        if self._call is None or not all(map(is_, made_of, self._made_of)):
            fills, table, factors = values
            axis = 0, 1, 0, 0.0, 0.0, 0, None
            given = *axis, *axis, columns.resample, False, fills, table, item, factors, None, planar, ps.ALL
            self._made_of, self._call = made_of, Call(passes.RUN, None, *given, passes.workspace.memory)
        self._call.hold(ps.SCRATCH, passes.workspace.memory)
        return self._call


_last = _Last()
