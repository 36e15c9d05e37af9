"""From component planes to pixels: libjpeg-turbo's fancy upsampling (jdsample.c) and colour conversion (jdcolor.c).

Rows of the region go to the caller's array, or in bands to a sink.  The kernels work on CHUNK samples at a time, and
may read and write past the end of a row, within the padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import njit, types

from accel.system.native.call_kernels import caller
from accel.system.native.intrinsics import emitted, splat
from accel.system.native.memory import pointer_to, step, u64
from accel.system.native.signatures import FIRST
from accel.system.native.simd import HAS_VBMI, Lanes, load

from . import decode_fields as df
from . import header_fields as hd
from . import layout_fields as lo
from .scratch import CHUNK

_take_band = caller(df.TAKE_BAND)

RED, BLUE = 13173, -7471
"""Halves of the factors for red and blue; 13173 is too large by 0.5, which changes none of the 256 products."""


def _wide(builder: ir.IRBuilder, base: Any, offset: int, bits: int) -> Lanes:
    return load(builder, step(builder, base, offset), CHUNK, 8).widen(bits)


def _interleave(even: Lanes, odd: Lanes) -> Lanes:
    return even.shuffle([i // 2 + CHUNK * (i % 2) for i in range(2 * CHUNK)], odd)


def _side_by_side(even: Lanes, odd: Lanes) -> Lanes:
    """Interleave the lanes, all below 256, of two vectors: each lane of the result holds both."""
    return even | odd << 8


def _between(builder: ir.IRBuilder, near: Any, far: Any, offset: int, parts: int) -> Lanes:
    """Samples between two rows, 3/4 of the nearer and 1/4 of the further one, times 4 * ``parts``."""
    if HAS_VBMI:
        rows = [load(builder, step(builder, row, offset), CHUNK, 8) for row in (near, far)]
        return _interleave(*rows).dot_bytes(3 * parts, parts)
    return (_wide(builder, near, offset, 16) * 3 + _wide(builder, far, offset, 16)) * parts


@emitted(types.void, None, types.uint64, types.uint64)
def upsample_h2v1(builder: ir.IRBuilder, plane: Any, near: Any, place: Any) -> None:
    """Write twice as many samples to plane[place:]: 3/4 of the nearer, 1/4 of the further one (h2v1_fancy_upsample)."""
    source = step(builder, plane, near)
    before, here, after = (_wide(builder, source, i, 16) for i in (-1, 0, 1))
    even = (here * 3 + before + 1) >> 2
    odd = (here * 3 + after + 2) >> 2
    _side_by_side(even, odd).store(step(builder, plane, place))


@emitted(types.void, None, types.uint64, types.uint64, types.uint64)
def upsample_h2v2(builder: ir.IRBuilder, plane: Any, near: Any, far: Any, place: Any) -> None:
    """The same in both directions; `near` and `far`: the two rows' offsets in plane (h2v2_fancy_upsample)."""
    near, far = step(builder, plane, near), step(builder, plane, far)
    before, here, after = (_between(builder, near, far, i, parts) for i, parts in ((-1, 1), (0, 3), (1, 1)))
    even = (here + before + 8) >> 4
    odd = (here + after + 7) >> 4
    _side_by_side(even, odd).store(step(builder, plane, place))


@emitted(types.void, None, types.uint64, types.uint64, types.uint64, types.uint64)
def upsample_h1v2(builder: ir.IRBuilder, plane: Any, near: Any, far: Any, bias: Any, place: Any) -> None:
    """The same between two rows only; bias: 1 for the upper output row, 2 for the lower (h1v2_fancy_upsample)."""
    near, far = step(builder, plane, near), step(builder, plane, far)
    everywhere = Lanes(builder, splat(builder, builder.trunc(bias, ir.IntType(16)), CHUNK))
    mixed = (_wide(builder, near, 0, 16) * 3 + _wide(builder, far, 0, 16) + everywhere) >> 2
    mixed.narrow(8).store(step(builder, plane, place))


def _store_interleaved(colours: Sequence[Lanes], target: Any) -> None:
    red, green, blue = colours
    planar = red.join(green).join(blue.join(blue))
    planar.shuffle([CHUNK * (i % 3) + i // 3 for i in range(3 * CHUNK)]).store(target)


def _store_saturated(colours: Sequence[Lanes], target: Any) -> None:
    """The same for 16-bit lanes, saturated to 0..255."""
    if not HAS_VBMI:
        _store_interleaved([colour.clamp(0, 255).narrow(8) for colour in colours], target)
        return
    red, green, blue = colours
    packs = red.pack(green), blue.pack(blue)
    # In two stores: for a single one, LLVM orders the bytes by a dozen instructions.
    for start, stop in ((0, 2 * CHUNK), (2 * CHUNK, 3 * CHUNK)):
        places = [16 * (i // 24) + i // 3 % 8 + (0, 8, 2 * CHUNK)[i % 3] for i in range(start, stop)]
        packs[0].shuffle(places, packs[1]).store(step(colours[0].builder, target, start))


def _three(builder: ir.IRBuilder, plane: Any, *offsets: Any) -> list[Lanes]:
    return [load(builder, step(builder, plane, offset), CHUNK, 8) for offset in offsets]


@emitted(types.void, None, types.uint64, types.uint64, types.uint64, None, types.uint64)
def ycc_to_rgb(builder: ir.IRBuilder, plane: Any, y: Any, cb: Any, cr: Any, out: Any, place: Any) -> None:
    """Convert CHUNK YCbCr pixels, from three places in plane, to interleaved RGB at out[place:] (ycc_rgb_convert)."""
    y, cb, cr = (s.widen(16) for s in _three(builder, plane, y, cb, cr))
    cb, cr = cb - 128, cr - 128
    # (65536 + 26345) * cr, (65536 * 2 - 14942) * cb and so on, rounded, over 65536; whole multiples are added apart, as
    # 16 bits do not hold these factors
    red = y + cr + cr.rounded_product(RED)
    blue = y + cb * 2 + cb.rounded_product(BLUE)
    green = y - cr + (_interleave(cb, cr).dot(-22554, 18734) + 32768).high_half()
    _store_saturated((red, green, blue), step(builder, out, place))


@emitted(types.void, None, types.uint64, types.uint64, types.uint64, None, types.uint64)
def interleave(builder: ir.IRBuilder, plane: Any, r: Any, g: Any, b: Any, out: Any, place: Any) -> None:
    """Interleave CHUNK samples each from three places in plane to out[place:]."""
    _store_interleaved(_three(builder, plane, r, g, b), step(builder, out, place))


# -- rows of pixels ------------------------------------------------------------------------------------------


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
def hand_over(header: Any, layout: Any, tools: Any, rows: Any, region: Any, sink: Any, out: Any) -> Any:
    """Write `rows` (from, to) of the picture to `out`, and hand complete bands to `sink`; False if it refuses one.

    The `region` is (top, left, height).  `out` has room for all of its rows, or only for a band: then `sink`, the words
    of a call (empty: none), takes each band before the next one is written to the same place.  `tools`: ``walk.Tools``.
    """
    (start, stop), (top, left, height) = rows, region
    while start < stop:
        begin = (start - top) // out.shape[0] * out.shape[0]
        count = min(height - begin, out.shape[0])
        ready = min(stop, top + begin + count)
        finish_rows(header, layout, tools.planes, start, ready, top + begin, left, out, tools.spare)
        start = ready
        if len(sink) > 0 and ready == top + begin + count:
            sink[FIRST], sink[FIRST + 1] = begin, count
            if _take_band(pointer_to(sink)) != 0:
                return False
    return True
