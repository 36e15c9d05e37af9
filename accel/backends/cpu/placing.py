"""Values of images put in their places in one tensor, by threads that share the rows of all images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from accel.backends.cpu import passes, stages
from accel.backends.shared.pixels import Pixels
from accel.planning.places import CHANNEL, COLUMN, REPEATED, ROW, Place, extent
from accel.planning.plan import bits
from accel.runtime.parallel import ParallelFor

_ROWS = 64
"""The rows of an image that a thread places at a time."""


def place(jobs: Sequence[tuple[Pixels, torch.Tensor, Place]], out: torch.Tensor, parallel: ParallelFor) -> None:
    """``HostBackend.place``."""
    flat = out.as_strided((extent(out),), (1,))
    memory = bits(flat).view(np.uint8)
    parallel.each((call for job in jobs for call in _calls(*job, memory)), lambda call: passes.place_rows(*call))


def _calls(image: Pixels, table: torch.Tensor, place: Place, memory: Any) -> Iterator[tuple[Any, ...]]:
    values, factors = stages.value_table(table)
    run, columns = 1, place
    last = [digit for digit in place.digits if digit.axis == COLUMN and digit.size > 1][-1:]
    if last and last[0].step == last[0].stride == 1:  # neighbours stay neighbours
        run, columns = last[0].size, place._replace(digits=tuple([each for each in place.digits if each != last[0]]))
    starts = columns.axis(COLUMN)
    first = int(starts[:, 0].min())
    span = np.array([first, int(starts[:, 0].max()) + run - first, run, values.itemsize], np.int64)
    rows, channels, copies = place.axis(ROW), place.axis(CHANNEL), place.axis(REPEATED)
    copies[:, 1] += place.offset
    for begin in range(0, len(rows), _ROWS):
        yield image, span, starts, rows[begin : begin + _ROWS], channels, copies, values, factors, memory
