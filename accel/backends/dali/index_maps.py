"""Lowering index maps of rows and columns to DALI operators: crops, flips, constant borders and nearest resizes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from accel.backends.dali.operator_chain import OperatorChain
from accel.ops.index import Index, nearest

_REFUSED = "DALI has no border but a constant one, and no other maps than crops, flips and nearest resizes"


class Span(NamedTuple):
    """A part of an axis, with ``before`` and ``after`` positions around it that show fill ``code`` (0 for none)."""

    start: int
    length: int
    flipped: bool
    before: int = 0
    after: int = 0
    code: int = 0


def add_index_maps(chain: OperatorChain, rows: Index, columns: Index, fills: tuple[tuple[int, ...], ...]) -> str | None:
    """Add operators that show ``rows`` and ``columns``; return the reason if DALI has none for them."""
    down, across = _run(rows), _run(columns)
    if down is None or across is None:
        return _resize_nearest(chain, rows, columns)
    runs = down, across
    codes = {run.code for run in runs if run.code}
    if len(codes) > 1:
        return "DALI makes borders of one colour only"
    chain.crop(tuple(run.start for run in runs), tuple(run.length for run in runs))
    if any(run.flipped for run in runs):
        chain.add("flip", (), ((int(runs[1].flipped),), (int(runs[0].flipped),)))
    if codes:
        colour = fills[-1 - codes.pop()]
        size = (rows.length, columns.length)
        corner = tuple(-run.before for run in runs)
        chain.add("pad", (colour[: chain.channels],), (corner, size), size)
    return None


def _run(index: Index) -> Span | None:
    if index.table is None:
        start = index.start if index.step > 0 else index.start - index.length + 1
        return Span(start, index.length, index.step < 0)
    table = index.table
    inside = np.flatnonzero(table >= 0)
    if not len(inside) or inside[-1] - inside[0] + 1 != len(inside):
        return None
    shown = table[inside]
    steps = np.unique(np.diff(shown))
    codes = np.unique(table[table < 0])
    if len(codes) > 1 or len(steps) > 1 or (len(steps) and abs(int(steps[0])) != 1):
        return None
    before, after = int(inside[0]), len(table) - int(inside[-1]) - 1
    flipped = bool(len(steps) and steps[0] < 0)
    return Span(int(shown.min()), len(shown), flipped, before, after, int(codes[0]) if len(codes) else 0)


def _resize_nearest(chain: OperatorChain, rows: Index, columns: Index) -> str | None:
    down, across = _region(rows, chain.size[0]), _region(columns, chain.size[1])
    if down is None or across is None:
        return _REFUSED
    starts, ends = zip(down, across, strict=True)
    sizes = (rows.length, columns.length)
    chain.add("resize", ("NN", False), (sizes, starts, ends), sizes)
    return None


def _region(index: Index, length: int) -> tuple[float, float] | None:
    """The range of an axis that a map resizes by nearest neighbours; None if it does something else."""
    table = index.array()
    if (table < 0).any():
        return None
    flipped = len(table) > 1 and table[0] > table[-1]
    places = table[::-1] if flipped else table
    count, span = len(places), int(places[-1]) - int(places[0])
    likely = span * count / max(count - 1, 1)
    least, most = max(int(likely) - 2 - span // max(count, 1), 1), int(likely) + 3 + span // max(count, 1)
    for size in sorted(range(least, most + 1), key=lambda size: (size != length, abs(size - likely))):
        for dialect in (nearest, _nearest):
            shown = dialect(size, count)
            offset = int(places[0]) - int(shown[0])
            if np.array_equal(shown + offset, places):
                start, end = float(offset), float(offset + size)
                return (end, start) if flipped else (start, end)
    return None


def _nearest(size: int, count: int) -> npt.NDArray[np.int32]:
    """``nearest`` by a product, as libraries round differently if two pixels are equally near."""
    return np.minimum(((np.arange(count) + 0.5) * (size / count)).astype(np.int32), size - 1)
