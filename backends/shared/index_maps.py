"""Index maps of a pass put together."""

from __future__ import annotations

from accel.ops.index import Index
from accel.planning.stages import Axis, Pass


def through(view: Index, window: Index) -> Index:
    """One map from a window on a view to the input."""
    if view.table is None and window.table is None:
        return Index(view.start + view.step * window.start, view.step * window.step, window.length)
    return view.take_or_fill(window.array())


def onto_view(stage: Pass) -> Pass:
    """The rest of a stage when its view is an image of its own."""
    return stage._replace(rows=_onto_view(stage.rows), columns=_onto_view(stage.columns))


def _onto_view(axis: Axis) -> Axis:
    return axis._replace(view=Index.identity(axis.view.length))
