"""Stages of a plan on one image: the compiled kernel, and Pillow itself should the two ever disagree."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from accel.backends.cpu import effects, passes
from accel.backends.cpu.normalization import NO_FACTORS
from accel.backends.shared.index_maps import onto_view
from accel.backends.shared.pixels import Pixels, image_of
from accel.ops.index import Index
from accel.ops.resample import SUPPORT
from accel.planning.lut import composed
from accel.planning.plan import bits
from accel.planning.stages import Axis, Effect, Levels, Pass, Stage
from accel.system import counters


class ValueTable(NamedTuple):
    """A value table as the kernel takes it: the bits of its entries, and arithmetic that may stand in for them."""

    table: npt.NDArray[Any]
    factors: npt.NDArray[np.float32]


@lru_cache(maxsize=64)
def value_table(table: torch.Tensor) -> ValueTable:
    """For a table that comes again; it is remembered by its identity."""
    entries = bits(table)
    return ValueTable(entries, passes.factors_of(entries))


def run(pixels: Pixels, stages: tuple[Stage, ...], values: ValueTable, out: npt.NDArray[Any], *, planar: bool) -> None:
    """Run ``stages`` on pixels [height, width, channels], look the results up in ``values`` and write them to ``out``.

    ``out``: of the table's dtype, [channels, rows, columns] if ``planar``, else [rows, columns, channels].
    """
    pending: Levels | None = None  # to be looked up before anything else looks at the pixels
    for number, stage in enumerate(stages):
        if isinstance(stage, Effect):
            pixels, table = effects.run(effects.looked_up(pixels, pending), stage)
            pending = composed(table, stage.levels)
            continue
        if pending is not None:
            if stage.resample or stage.fills:
                pixels = effects.looked_up(pixels, pending)
            else:  # it only moves pixels: they may as well be looked up afterwards
                stage = stage._replace(levels=composed(pending, stage.levels))
            pending = None
        if number == len(stages) - 1:
            _pass(pixels, stage, values, out, planar=planar)
        elif stage.changes(pixels.shape[:2]):
            between = np.empty((*stage.output_size, pixels.shape[2]), np.uint8)
            _pass(pixels, stage, _same(pixels.shape[2]), between, planar=False)
            pixels = between


def _pass(pixels: Pixels, stage: Pass, values: ValueTable, out: npt.NDArray[Any], *, planar: bool) -> None:
    fills = _colours(stage.fills, pixels.shape[2])
    listed = stage.rows.view.table is not None or stage.columns.view.table is not None
    if stage.resample in SUPPORT and not resizes_as_pillow():
        stage, pixels = _resized_by_pillow(pixels, stage, fills)
    elif listed:
        stage, pixels = _viewed(pixels, stage, fills)
    table, factors = values
    if stage.levels is not None:
        table = np.stack([entries[levels] for entries, levels in zip(table, stage.levels, strict=True)])
        factors = NO_FACTORS  # this table will not come again
    axes = _axis(stage.rows), _axis(stage.columns)
    passes.run(pixels, *axes, stage.resample, fills, table, out, planar, factors=factors)


@lru_cache(maxsize=64)
def _colours(fills: tuple[tuple[int, ...], ...], channels: int) -> Pixels:
    return np.array(fills, np.uint8).reshape(-1, channels)


def _viewed(pixels: Pixels, stage: Pass, fills: Pixels) -> tuple[Pass, Pixels]:
    """The stage's view as an image of its own (taps may lie in padding there), and the stage on that."""
    rows, columns = _within(stage.rows.view, pixels.shape[0]), _within(stage.columns.view, pixels.shape[1])
    view = np.empty((len(rows), len(columns), pixels.shape[2]), np.uint8)
    passes.gather(pixels, rows, columns, fills, view)
    return onto_view(stage), view


def _within(view: Index, length: int) -> npt.NDArray[np.int32]:
    """The view's positions; those outside what was decoded are never looked at, so any that exists will do."""
    positions = view.array()
    if view.table is None:
        positions = np.maximum(positions, 0)
    return np.minimum(positions, length - 1)


def _axis(axis: Axis) -> Any:
    view = axis.view
    return passes.Axis(view.start, view.step, view.length, axis.size, axis.window.array())


@cache
def _same(channels: int) -> ValueTable:
    """The table of uint8 values that stay as they are."""
    return ValueTable(np.tile(np.arange(256, dtype=np.uint8), (channels, 1)), NO_FACTORS)


# -- should a version of Pillow ever resize in another way ---------------------------------------------------


_TRIED = ((61, 53, 22, 25), (97, 31, 24, 29), (29, 97, 40, 33), (97, 1, 5, 2))
"""Height and width, before and after."""


@cache
def resizes_as_pillow() -> bool:
    """Whether the kernel's resize equals the installed Pillow's, on a few images of all proportions."""
    noise = np.random.default_rng(0).integers(0, 256, (97, 97, 3), np.uint8)
    for resample in SUPPORT:
        for height, width, new_height, new_width in _TRIED:
            picture = np.ascontiguousarray(noise[:height, :width])
            found = np.empty((new_height, new_width, 3), np.uint8)
            if not np.array_equal(_resized(picture, resample, found), _by_pillow(picture, resample, found)):
                counters.fallback("the installed Pillow resizes in a way that accel does not know; Pillow resizes")
                return False
    return True


def _resized(picture: Pixels, resample: int, like: Pixels) -> Pixels:
    (height, width), (new_height, new_width) = picture.shape[:2], like.shape[:2]
    out = np.empty_like(like)
    rows = Axis(Index.identity(height), new_height, Index.identity(new_height))
    columns = Axis(Index.identity(width), new_width, Index.identity(new_width))
    no_fills = np.empty((0, 3), np.uint8)
    passes.run(picture, _axis(rows), _axis(columns), resample, no_fills, _same(3).table, out, False)
    return out


def _by_pillow(picture: Pixels, resample: int, like: Pixels) -> Pixels:
    size = like.shape[1], like.shape[0]
    return np.asarray(image_of(picture).resize(size, resample)).reshape(like.shape)


def _resized_by_pillow(pixels: Pixels, stage: Pass, fills: Pixels) -> tuple[Pass, Pixels]:
    """The stage's view, resized as a whole by Pillow, and what is left of the stage."""
    stage, view = _viewed(pixels, stage, fills)
    rows, columns = stage.rows, stage.columns
    like = np.empty((rows.size, columns.size, view.shape[2]), np.uint8)
    resized = np.ascontiguousarray(_by_pillow(view, stage.resample, like))
    rows, columns = rows._replace(view=Index.identity(rows.size)), columns._replace(view=Index.identity(columns.size))
    return stage._replace(rows=rows, columns=columns, resample=0), resized
