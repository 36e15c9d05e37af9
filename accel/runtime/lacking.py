"""Files of a batch that a cache lacks, and an estimate of how much is decoded of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from accel.planning.order import Steps
from accel.recipe import Source
from accel.rows import Form, Rows, Slot
from accel.sources import Numbers


class Lacking(NamedTuple):
    """Files that a cache lacks.

    Attributes:
        sources: of the batch, or a part of it. numbers: the positions in ``sources`` of those that the cache lacks.
        regions: for each of these the pixels that a first decode covers: all rows down to the end of the crop.
    """

    sources: Sequence[Source]
    numbers: Numbers
    regions: Numbers


def of_rows(rows: Rows, numbers: Sequence[int]) -> Lacking:
    """The files of rows with these numbers."""
    which = np.asarray(numbers, np.int64)
    heights, widths, _ = rows.sizes()
    bottoms = heights[which]
    if rows.structure.forms:
        bottoms = _bottoms(rows.structure.forms[0], rows.numbers[which], bottoms)
    return Lacking(rows.sources, which, widths[which] * bottoms)


def of_images(images: Sequence[tuple[Source, Steps]]) -> Lacking:
    """Files given as sources, each with its steps on pixels."""
    regions = [source.header.width * _bottom(source.header.height, steps) for source, steps in images]
    return Lacking([source for source, _ in images], np.arange(len(images)), np.array(regions, np.int64))


def _bottoms(first: Form, numbers: Numbers, heights: Numbers) -> Numbers:
    """The last row (excluded) of each image's first crop; the height of one that begins otherwise."""
    if first.name != "crop" or any(isinstance(each, Slot) and each.real for each in first.params):
        return heights
    given = [numbers[:, each.column] if isinstance(each, Slot) else each for each in first.params]
    tops: npt.NDArray[np.int64] = np.clip(given[0], 0, heights)
    ends: Numbers = tops + np.minimum(given[2], heights - tops)
    return ends if first.drawn < 0 else np.where(numbers[:, first.drawn] != 0, ends, heights)


def _bottom(height: int, steps: Steps) -> int:
    if not steps or steps[0][0] != "crop":
        return height
    top, _, rows, _ = steps[0][1]
    top = min(max(top, 0), height)
    return int(top + min(rows, height - top))
