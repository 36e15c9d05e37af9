"""The part of each component that a region needs, and where its samples lie in the scratch planes."""

from __future__ import annotations

from typing import Any

from numba import njit

from accel.system.native.memory import i64

from . import header_fields as hd
from . import layout_fields as lo
from .header import parse

PADDING = 64  # on either side of a plane's rows: kernels read one sample to the left and a chunk to the right


@njit
def _needed(start: int, stop: int, ratio: int, reach: int, size: int) -> tuple[int, int]:
    """The blocks [first, last) with the samples of pixels [start, stop) and `reach` neighbours on either side."""
    first = max(start // ratio - reach, 0)
    last = min((stop - 1) // ratio + reach, size - 1)
    return first >> 3, (last >> 3) + 1


@njit
def region(header: Any, layout: Any, top: int, left: int, height: int, width: int, all_rows: bool) -> Any:
    """Fill `layout` for a region; returns the size in bytes of the planes and lines; 0: it is not in the picture.

    The planes hold all needed rows (`all_rows`), or two rows of MCUs: enough for the rows of pixels that are finished
    together, and small enough for the nearest caches.
    """
    if top < 0 or left < 0 or height < 1 or width < 1:
        return 0
    if height > header[hd.HEIGHT] - top or width > header[hd.WIDTH] - left:
        return 0
    size = PADDING
    for c in range(header[hd.COMPONENTS]):
        row = layout[c]
        fields = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c :]
        h_ratio = header[hd.H_MAX] // fields[hd.H_SAMP]
        v_ratio = header[hd.V_MAX] // fields[hd.V_SAMP]
        columns = (header[hd.WIDTH] + h_ratio - 1) // h_ratio
        rows = (header[hd.HEIGHT] + v_ratio - 1) // v_ratio
        # jinit_upsampler of jdsample.c; narrow planes are repeated
        kind = lo.REPEAT
        if h_ratio == 1 and v_ratio == 1:
            kind = lo.PLAIN
        elif h_ratio == 1 and v_ratio == 2:
            kind = lo.H1V2
        elif h_ratio == 2 and v_ratio == 1 and columns > 2:
            kind = lo.H2V1
        elif h_ratio == 2 and v_ratio == 2 and columns > 2:
            kind = lo.H2V2
        h_reach = 1 if kind in (lo.H2V1, lo.H2V2) else 0
        v_reach = 1 if kind in (lo.H1V2, lo.H2V2) else 0
        block_left, block_right = _needed(left, left + width, h_ratio, h_reach, columns)
        block_top, block_bottom = _needed(top, top + height, v_ratio, v_reach, rows)
        stride = 8 * (block_right - block_left) + 2 * PADDING
        row[lo.KIND], row[lo.H_RATIO], row[lo.V_RATIO] = kind, h_ratio, v_ratio
        row[lo.COLUMNS], row[lo.ROWS] = columns, rows
        row[lo.BLOCK_LEFT], row[lo.BLOCK_RIGHT] = block_left, block_right
        row[lo.BLOCK_TOP], row[lo.BLOCK_BOTTOM] = block_top, block_bottom
        row[lo.STRIDE] = stride
        row[lo.ORIGIN] = size + PADDING - 8 * block_left
        row[lo.RING] = 16 * fields[hd.V_SAMP]
        if all_rows or row[lo.RING] >= 8 * (block_bottom - block_top):
            row[lo.ORIGIN] -= 8 * block_top * stride
            row[lo.RING] = 8 * block_bottom
        size += min(row[lo.RING], 8 * (block_bottom - block_top)) * stride
        row[lo.LINE] = size + PADDING
        size += width + 4 * PADDING
    return size


@njit
def prepare(data: Any, header: Any, layout: Any, whole: bool, top: int, left: int, height: int, width: int) -> Any:
    """Read the header and lay out the region, or the whole picture.

    Returns the size in bytes of the planes and lines; 0: this decoder does not decode the file, or the region is not in
    the picture.
    """
    if not parse(data, header):
        return 0
    if whole:
        top, left, height, width = 0, 0, header[hd.HEIGHT], header[hd.WIDTH]
    return region(header, layout, top, left, height, width, whole)


@njit
def needed_mcus(header: Any, layout: Any) -> tuple[Any, Any, Any, Any, int]:
    """The needed MCUs: the first column, the column behind the last, the first row, the last row.

    And the number of pixel rows that can only be finished with the next row of MCUs, which has their neighbours.
    """
    left, right = i64(1) << 40, i64(0)
    top, last, lag = i64(1) << 40, i64(0), 0
    for c in range(header[hd.COMPONENTS]):
        fields, row = header[hd.COMPONENT + hd.COMPONENT_FIELDS * c :], layout[c]
        h, v = fields[hd.H_SAMP], fields[hd.V_SAMP]
        left, right = min(left, row[lo.BLOCK_LEFT] // h), max(right, (row[lo.BLOCK_RIGHT] - 1) // h + 1)
        top, last = min(top, row[lo.BLOCK_TOP] // v), max(last, (row[lo.BLOCK_BOTTOM] - 1) // v)
        if row[lo.KIND] in (lo.H1V2, lo.H2V2):
            lag = 1
    return left, right, top, last, lag
