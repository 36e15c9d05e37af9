"""Combining the index maps of a pass."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from accel.ops.index import Index
from accel.planning.stages import Pass


def through(view: Index, window: Index) -> Index:
    """Combine a window on a view and the view to one map to the input."""
    if view.table is None and window.table is None:
        return Index(view.start + view.step * window.start, view.step * window.step, window.length)
    return view.take_or_fill(window.array())


def positions(index: Index, length: int) -> npt.NDArray[np.int32]:
    """A map's positions, limited to ``length``: those outside of what was decoded are not used, so any will do."""
    found = index.array() if index.table is not None else np.maximum(index.array(), 0)
    return np.minimum(found, length - 1)


def onto_view(stage: Pass) -> Pass:
    """The rest of a stage, once its view is an image of its own."""
    rows, columns = (axis._replace(view=Index.identity(axis.view.length)) for axis in (stage.rows, stage.columns))
    return stage._replace(rows=rows, columns=columns)
