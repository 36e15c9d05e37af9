"""Index maps of a pass put together."""

from __future__ import annotations

from accel.ops.index import Index
from accel.planning.stages import Pass


def through(view: Index, window: Index) -> Index:
    """One map from a window on a view to the input."""
    if view.table is None and window.table is None:
        return Index(view.start + view.step * window.start, view.step * window.step, window.length)
    return view.take_or_fill(window.array())


def onto_view(stage: Pass) -> Pass:
    """The rest of a stage when its view is an image of its own."""
    rows, columns = (axis._replace(view=Index.identity(axis.view.length)) for axis in (stage.rows, stage.columns))
    return stage._replace(rows=rows, columns=columns)
