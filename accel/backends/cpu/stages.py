"""Running a plan's stages on one image: by the compiled kernel, or by Pillow if the two disagree."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from accel.backends.cpu import effects, pass_fields, passes
from accel.backends.cpu.passes import NO_FACTORS
from accel.backends.shared.index_maps import onto_view, positions
from accel.backends.shared.pixels import Pixels, image_of
from accel.ops.index import Index
from accel.ops.resample import SUPPORT, box_of, part
from accel.planning.lut import composed
from accel.planning.plan import bits
from accel.planning.stages import Axis, Effect, Levels, Pass, Stage
from accel.system import counters


class ValueTable(NamedTuple):
    """A value table for the kernel: the bits of its entries, and the factors of arithmetic that may replace them."""

    table: npt.NDArray[Any]
    factors: npt.NDArray[np.float32]


@lru_cache(maxsize=64)
def value_table(table: torch.Tensor) -> ValueTable:
    """The value table of a tensor that comes repeatedly; remembered by the tensor's identity."""
    entries = bits(table)
    return ValueTable(entries, passes.factors_of(entries))


def run(pixels: Pixels, stages: tuple[Stage, ...], values: ValueTable, out: npt.NDArray[Any], *, planar: bool) -> None:
    """Run ``stages`` on pixels [height, width, channels], look the results up in ``values`` and write them to ``out``.

    ``out``: of the table's dtype, [channels, rows, columns] if ``planar``, else [rows, columns, channels].
    """
    pending: Levels | None = None  # a table to look pixels up in before anything else uses them
    for number, stage in enumerate(stages):
        if isinstance(stage, Effect):
            pixels, table = effects.run(effects.looked_up(pixels, pending), stage)
            pending = composed(table, stage.levels)
            continue
        if pending is not None:
            if stage.resample or stage.fills:
                pixels = effects.looked_up(pixels, pending)
            else:  # it only moves pixels, so they can be looked up afterwards
                stage = stage._replace(levels=composed(pending, stage.levels))
            pending = None
        if number == len(stages) - 1:
            _pass(pixels, stage, values, out, planar=planar)
        elif stage.changes(pixels.shape[:2]):
            between = np.empty((*stage.output_size, pixels.shape[2]), np.uint8)
            _pass(pixels, stage, _same(pixels.shape[2]), between, planar=False)
            pixels = between


def _pass(pixels: Pixels, stage: Pass, values: ValueTable, out: npt.NDArray[Any], *, planar: bool) -> None:
    fills = colours(stage.fills, pixels.shape[2])
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
def colours(fills: tuple[tuple[int, ...], ...], channels: int) -> Pixels:
    """Fill colours for the kernel, uint8 [colours, channels]."""
    return np.array(fills, np.uint8).reshape(-1, channels)


def _viewed(pixels: Pixels, stage: Pass, fills: Pixels) -> tuple[Pass, Pixels]:
    """The stage on its view, and the view as an image of its own (in which taps may lie in padding)."""
    (height, width, channels), views = pixels.shape, (stage.rows.view, stage.columns.view)
    rows = _resizing(height, height)._replace(window=positions(views[0], height))
    columns = _resizing(width, width)._replace(window=positions(views[1], width))
    made = np.empty((views[0].length, views[1].length, channels), np.uint8)
    passes.run(pixels, rows, columns, 0, fills, _same(channels).table, made, False)
    return onto_view(stage), made


def _resizing(length: int, size: int) -> pass_fields.Axis:
    """A whole axis, resized from ``length`` to ``size``."""
    return pass_fields.Axis(0, 1, length, 0.0, length, size, np.arange(size, dtype=np.int32))


def _axis(axis: Axis) -> Any:
    view = axis.view
    return pass_fields.Axis(
        view.start, view.step, view.length, *part(axis.extent, view.length), axis.size, axis.window.array()
    )


@cache
def _same(channels: int) -> ValueTable:
    """The identity table of uint8 values."""
    return ValueTable(np.tile(np.arange(256, dtype=np.uint8), (channels, 1)), NO_FACTORS)


# -- should a version of Pillow ever resize in another way ---------------------------------------------------


_TRIED = ((61, 53, 22, 25), (97, 31, 24, 29), (29, 97, 40, 33), (97, 1, 5, 2))
"""Heights and widths before and after a resize."""


@cache
def resizes_as_pillow() -> bool:
    """Whether the kernel's resize equals the installed Pillow's, on a few images of different proportions."""
    noise = np.random.default_rng(0).integers(0, 256, (97, 97, 3), np.uint8)
    for resample in SUPPORT:
        for height, width, new_height, new_width in _TRIED:
            picture = np.ascontiguousarray(noise[:height, :width])
            axes = _resizing(height, new_height), _resizing(width, new_width)
            found = np.empty((new_height, new_width, 3), np.uint8)
            passes.run(picture, *axes, resample, np.empty((0, 3), np.uint8), _same(3).table, found, False)
            if not np.array_equal(found, np.asarray(image_of(picture).resize((new_width, new_height), resample))):
                counters.fallback("the installed Pillow resizes in a way that accel does not know; Pillow resizes")
                return False
    return True


def _resized_by_pillow(pixels: Pixels, stage: Pass, fills: Pixels) -> tuple[Pass, Pixels]:
    """The rest of the stage, and its view resized as a whole by Pillow."""
    stage, view = _viewed(pixels, stage, fills)
    rows, columns = stage.rows, stage.columns
    box = box_of(rows.extent, columns.extent, view.shape[:2])
    picture = image_of(view).resize((columns.size, rows.size), stage.resample, box)
    resized = np.array(picture).reshape(rows.size, columns.size, -1)
    rows, columns = (axis._replace(view=Index.identity(axis.size), extent=None) for axis in (rows, columns))
    return stage._replace(rows=rows, columns=columns, resample=0), resized
