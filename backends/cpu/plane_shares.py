"""Batches of a cache's half-decoded pictures, shared by threads that each process their images in one compiled call.

Damaged pictures, which the call leaves, are run as single images.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import thread_time
from typing import Any

import numpy as np
import numpy.typing as npt

from accel.backends.cpu import pass_fields as ps
from accel.backends.cpu import passes, shares
from accel.backends.cpu import share_fields as sh
from accel.cache import reading
from accel.codec import jpeg
from accel.codec.jpeg import planes as jpeg_planes
from accel.codec.jpeg import planes_fields as pf
from accel.memo import pace, planes
from accel.native import units
from accel.planning.columns import Columns
from accel.recipe import Source
from accel.runtime import read
from accel.sources import Files
from accel.system.clocks import DECODE, TRANSFORM
from accel.system.compiled_stage import CLOCK, compiled_stage
from accel.system.memory import Scratch

_SOURCES = "backends/cpu/plane_share_kernels.py", "cache/reading_fields.py"
UNIT = units.Unit("plane_share", *_SOURCES, *shares.STEPS, seconds=1)
_run_plane_share = UNIT.function(
    "backends.cpu.plane_share_kernels",
    "run_plane_share",
    "i8[1]w i8[1] u2[2] i8[2]w u4[1] i8[1] i8[2] i8[3] u1[1] i8[1]w i8[1]w i8[1]w i8[1]w i8[1]w i8[1]w i8[1] i4[2]w"
    " u1[1]w any[1]w i8[2] i8[3]w int int int bool",
)
_parts = Scratch()


class Shared:
    """The images of a batch that a cache has half-decoded. ``others``: the places of the other images."""

    def __init__(self, columns: Columns, sources: Sequence[Source]) -> None:
        sizes = columns.boxes[:, 2] * columns.boxes[:, 3] * columns.channels
        small, looked = sizes <= read.LARGEST, sources.made() if isinstance(sources, Files) else enumerate(sources)
        here = {place: source for place, source in sorted(looked) if small[place] and planes.has(source)}
        found = planes.together([*here.values()]) if here else None
        if found is None:
            here.clear()
        self.columns, self._found = columns, found
        self.others = [position for position in range(len(sources)) if position not in here]
        self.positions = np.array([*here], np.int64)
        self._sources = [*here.values()]
        self.counter = np.zeros(1, np.int64)
        self.room = int(sizes[self.positions].max(initial=0))

    def __len__(self) -> int:
        return len(self.positions)

    def run(self, given: shares.Given, target: npt.NDArray[Any], planar: bool) -> list[int]:
        """Process images until none is left; return the places of those that are left to Python."""
        assert self._found is not None
        columns, item, (_, largest, *pictures) = self.columns, target.dtype.itemsize, self._found
        parts, pixels = _parts.take(largest), read.room.take(self.room)
        needed, unpack, span = jpeg_planes.calls(parts)
        reads, fused = reading.call(parts), shares.pass_call(columns, given, item, planar)
        left, said = np.empty(len(self), np.int64), np.zeros(sh.SAID, np.int64)
        said[sh.CURRENT] = -1
        windows, begun = np.empty((2, max(columns.largest)), np.int32), thread_time()
        with compiled_stage(DECODE, TRANSFORM, len(self)) as times:
            while True:
                _run_plane_share(
                    self.counter, self.positions, *pictures, columns.boxes, columns.axes,
                    columns.rows_first.view(np.uint8), left, said, needed.words, reads.words, unpack.words, fused.words,
                    span, windows, pixels, target, columns.parts, times, CLOCK, item, columns.channels, planar,
                )  # fmt: skip
                if said[sh.CURRENT] < 0:
                    break
                size = int(said[sh.ROOM])
                if said[sh.WANTED] == sh.PASS:
                    fused.hold(ps.SCRATCH, passes.larger(size))
                else:
                    unpack.hold(pf.PLANES, jpeg.room("planes", size))
        took, count = 1e6 * (thread_time() - begun), len(columns.boxes)
        widths = np.array([source.header.width for source in self._sources], np.int64)
        regions = pace.pixels_of_all(widths, columns.boxes[self.positions])
        planes.used(self._sources, regions, count, int(said[sh.DONE]), took)
        found: list[int] = left[: said[sh.LEFT]].tolist()
        return found
