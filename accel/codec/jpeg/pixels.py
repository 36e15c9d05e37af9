"""From component planes to pixels: libjpeg-turbo's fancy upsampling (jdsample.c) and colour conversion (jdcolor.c).

The kernels work on CHUNK samples at a time, and may read and write past the end of a row, within the padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types

from accel.system.native.intrinsics import emitted, splat
from accel.system.native.memory import step
from accel.system.native.simd import HAS_VBMI, Lanes, load

from .scratch import CHUNK

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
