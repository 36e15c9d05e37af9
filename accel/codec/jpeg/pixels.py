"""From component planes to pixels: libjpeg-turbo's fancy upsampling (jdsample.c) and colour conversion (jdcolor.c).

The kernels work on CHUNK samples at a time and may read and write past the end of a row, within the padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types

from accel.native.intrinsics import emitted, splat

from .memory import step
from .scratch import CHUNK
from .simd import HAS_VBMI, Lanes, load

RED, BLUE = 13173, -7471
"""Halves of factors of red and blue; that 13173 is half too large changes none of the 256 products."""


def _wide(builder: ir.IRBuilder, base: Any, offset: int, bits: int) -> Lanes:
    return load(builder, step(builder, base, offset), CHUNK, 8).widen(bits)


def _interleave(even: Lanes, odd: Lanes) -> Lanes:
    return even.shuffle([i // 2 + CHUNK * (i % 2) for i in range(2 * CHUNK)], odd)


def _side_by_side(even: Lanes, odd: Lanes) -> Lanes:
    """Lanes below 256 of two vectors in turns: the lanes of one with both."""
    return even | odd << 8


def _between(builder: ir.IRBuilder, near: Any, far: Any, offset: int, parts: int) -> Lanes:
    """Samples between two rows, 3/4 the nearer one's, times 4 * ``parts``."""
    if HAS_VBMI:
        rows = [load(builder, step(builder, row, offset), CHUNK, 8) for row in (near, far)]
        return _interleave(*rows).dot_bytes(3 * parts, parts)
    return (_wide(builder, near, offset, 16) * 3 + _wide(builder, far, offset, 16)) * parts


@emitted(types.void, None, types.uint64, types.uint64)
def upsample_h2v1(builder: ir.IRBuilder, plane: Any, near: Any, place: Any) -> None:
    """plane[place:] = twice as many samples: 3/4 the nearer, 1/4 the further neighbour (h2v1_fancy_upsample)."""
    source = step(builder, plane, near)
    before, here, after = (_wide(builder, source, i, 16) for i in (-1, 0, 1))
    even = (here * 3 + before + 1) >> 2
    odd = (here * 3 + after + 2) >> 2
    _side_by_side(even, odd).store(step(builder, plane, place))


@emitted(types.void, None, types.uint64, types.uint64, types.uint64)
def upsample_h2v2(builder: ir.IRBuilder, plane: Any, near: Any, far: Any, place: Any) -> None:
    """The same in both directions: `near` and `far` are the rows' offsets in plane (h2v2_fancy_upsample)."""
    near, far = step(builder, plane, near), step(builder, plane, far)
    before, here, after = (_between(builder, near, far, i, parts) for i, parts in ((-1, 1), (0, 3), (1, 1)))
    even = (here + before + 8) >> 4
    odd = (here + after + 7) >> 4
    _side_by_side(even, odd).store(step(builder, plane, place))


@emitted(types.void, None, types.uint64, types.uint64, types.uint64, types.uint64)
def upsample_h1v2(builder: ir.IRBuilder, plane: Any, near: Any, far: Any, bias: Any, place: Any) -> None:
    """Between two rows only; bias 1 for the upper output row, 2 for the lower (h1v2_fancy_upsample)."""
    near, far = step(builder, plane, near), step(builder, plane, far)
    everywhere = Lanes(builder, splat(builder, builder.trunc(bias, ir.IntType(16)), CHUNK))
    mixed = (_wide(builder, near, 0, 16) * 3 + _wide(builder, far, 0, 16) + everywhere) >> 2
    mixed.narrow(8).store(step(builder, plane, place))


def _store_interleaved(colours: Sequence[Lanes], target: Any) -> None:
    red, green, blue = colours
    planar = red.join(green).join(blue.join(blue))
    planar.shuffle([CHUNK * (i % 3) + i // 3 for i in range(3 * CHUNK)]).store(target)


def _store_saturated(colours: Sequence[Lanes], target: Any) -> None:
    """The same of 16-bit lanes: 0 for what is less, 255 for what is more."""
    if not HAS_VBMI:
        _store_interleaved([colour.clamp(0, 255).narrow(8) for colour in colours], target)
        return
    red, green, blue = colours
    packs = red.pack(green), blue.pack(blue)
    # Stored at once, LLVM would put the bytes in order by a dozen instructions.
    for start, stop in ((0, 2 * CHUNK), (2 * CHUNK, 3 * CHUNK)):
        places = [16 * (i // 24) + i // 3 % 8 + (0, 8, 2 * CHUNK)[i % 3] for i in range(start, stop)]
        packs[0].shuffle(places, packs[1]).store(step(colours[0].builder, target, start))


def _three(builder: ir.IRBuilder, plane: Any, *offsets: Any) -> list[Lanes]:
    return [load(builder, step(builder, plane, offset), CHUNK, 8) for offset in offsets]


@emitted(types.void, None, types.uint64, types.uint64, types.uint64, None, types.uint64)
def ycc_to_rgb(builder: ir.IRBuilder, plane: Any, y: Any, cb: Any, cr: Any, out: Any, place: Any) -> None:
    """CHUNK pixels of YCbCr, from three places in plane, to interleaved RGB at out[place:] (ycc_rgb_convert)."""
    y, cb, cr = (s.widen(16) for s in _three(builder, plane, y, cb, cr))
    cb, cr = cb - 128, cr - 128
    # (65536 + 26345) * cr, (65536 * 2 - 14942) * cb and so on, rounded, over 65536: what 16 bits do not hold, apart
    red = y + cr + cr.rounded_product(RED)
    blue = y + cb * 2 + cb.rounded_product(BLUE)
    green = y - cr + (_interleave(cb, cr).dot(-22554, 18734) + 32768).high_half()
    _store_saturated((red, green, blue), step(builder, out, place))


@emitted(types.void, None, types.uint64, types.uint64, types.uint64, None, types.uint64)
def interleave(builder: ir.IRBuilder, plane: Any, r: Any, g: Any, b: Any, out: Any, place: Any) -> None:
    """CHUNK samples each from three places in plane, side by side at out[place:]."""
    _store_interleaved(_three(builder, plane, r, g, b), step(builder, out, place))
