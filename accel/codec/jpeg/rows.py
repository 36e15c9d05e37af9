"""Finishing rows of the region: from the component planes to the caller's array, or in bands to a sink."""

from __future__ import annotations

from typing import Any

from numba import njit

from accel.system.native.call_fields import FIRST
from accel.system.native.call_kernels import caller
from accel.system.native.memory import pointer_to, u64

from . import decode_fields as df
from . import header_fields as hd
from . import layout_fields as lo
from .pixels import interleave, upsample_h1v2, upsample_h2v1, upsample_h2v2, ycc_to_rgb
from .scratch import CHUNK

_take_band = caller(df.TAKE_BAND)


@njit
def _clamp_neighbours(plane: Any, start: int, first: int, last: int, columns: int) -> None:
    """Repeat the outermost samples of the row at plane[start:] beyond its ends, if samples [first, last) reach them."""
    if first == 0:
        plane[start - 1] = plane[start]
    if last == columns:
        plane[start + columns] = plane[start + columns - 1]


@njit
def _upsample(plane: Any, row: Any, y: int, left: int, right: int) -> Any:
    """The place in `plane` of one component's pixels [left, right) of picture row y, upsampled if necessary."""
    kind, h_ratio, v_ratio = row[lo.KIND], row[lo.H_RATIO], row[lo.V_RATIO]
    near = row[lo.ORIGIN] + y // v_ratio % row[lo.RING] * row[lo.STRIDE]
    line = row[lo.LINE]
    if kind == lo.PLAIN:
        return near + left
    if kind == lo.REPEAT:
        for x in range(left, right):
            plane[line + x - left] = plane[near + x // h_ratio]
        return line
    neighbour = min(max(y // v_ratio + 2 * (y & 1) - 1, 0), row[lo.ROWS] - 1)
    far = row[lo.ORIGIN] + neighbour % row[lo.RING] * row[lo.STRIDE]
    first, last = left // h_ratio, (right - 1) // h_ratio + 1
    if kind != lo.H1V2:
        _clamp_neighbours(plane, near, first, last, row[lo.COLUMNS])
    if kind == lo.H2V2:
        _clamp_neighbours(plane, far, first, last, row[lo.COLUMNS])
    for x in range(first, last, CHUNK):
        a, b, place = u64(near + x), u64(far + x), u64(line + (x - first) * h_ratio)
        if kind == lo.H2V2:
            upsample_h2v2(plane, a, b, place)
        elif kind == lo.H2V1:
            upsample_h2v1(plane, a, place)
        else:
            upsample_h1v2(plane, a, b, u64(1 + (y & 1)), place)
    return line + left - first * h_ratio


@njit
def _mix(colour: int, plane: Any, at: Any, x: int, out: Any, place: int) -> None:
    """Convert CHUNK pixels, from column x of the three rows of samples on, to out[place:]."""
    a, b, c = u64(at[0] + x), u64(at[1] + x), u64(at[2] + x)
    if colour == hd.YCC:
        ycc_to_rgb(plane, a, b, c, out, u64(place))
    else:
        interleave(plane, a, b, c, out, u64(place))


@njit
def _colour_row(colour: int, plane: Any, at: Any, width: int, out: Any, place: int, spare: Any) -> None:
    """Write one row of RGB pixels to out[place:], and nothing beyond: the last chunk overlaps the one before."""
    if width < CHUNK:
        _mix(colour, plane, at, 0, spare, 0)
        for i in range(3 * width):
            out[place + i] = spare[i]
        return
    for x in range(0, width - CHUNK, CHUNK):
        _mix(colour, plane, at, x, out, place + 3 * x)
    _mix(colour, plane, at, width - CHUNK, out, place + 3 * (width - CHUNK))


@njit(inline="never")
def finish_rows(
    header: Any, layout: Any, plane: Any, start: int, stop: int, top: int, left: int, out: Any, spare: Any
) -> None:
    """Write rows [start, stop) of the picture to `out`, uint8[height, width, 1 or 3], which begins at (top, left)."""
    width, channels = out.shape[1], out.shape[2]
    right = left + width
    pixels = pointer_to(out)
    for y in range(start, stop):
        place = (y - top) * width * channels
        if header[hd.COLOUR] == hd.GREY:
            at = _upsample(plane, layout[0], y, left, right)
            for x in range(width):
                for c in range(channels):
                    pixels[place + x * channels + c] = plane[at + x]
        else:
            rows = (
                _upsample(plane, layout[0], y, left, right),
                _upsample(plane, layout[1], y, left, right),
                _upsample(plane, layout[2], y, left, right),
            )
            _colour_row(header[hd.COLOUR], plane, rows, width, pixels, place, spare)


@njit
def hand_over(
    header: Any, layout: Any, plane: Any, start: int, stop: int, top: int, left: int, height: int, sink: Any, out: Any,
    spare: Any,
) -> Any:  # fmt: skip
    """Write rows [start, stop) of the picture to `out`, and hand complete bands to `sink`; False if it refuses one.

    The region has `height` rows from (top, left) on. `out` has room for all of them, or only for a band: then `sink`,
    the words of a call (empty: none), takes each band before the next one is written to the same place.
    """
    while start < stop:
        begin = (start - top) // out.shape[0] * out.shape[0]
        count = min(height - begin, out.shape[0])
        ready = min(stop, top + begin + count)
        finish_rows(header, layout, plane, start, ready, top + begin, left, out, spare)
        start = ready
        if len(sink) > 0 and ready == top + begin + count:
            sink[FIRST], sink[FIRST + 1] = begin, count
            if _take_band(pointer_to(sink)) != 0:
                return False
    return True
