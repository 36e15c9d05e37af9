"""PTX operations that NumPy lacks, on arrays of one value for each thread."""

from typing import Any

import numpy as np

Array = Any  # NumPy's; its own types cannot tell what an instruction makes


def divided(a: Array, b: Array) -> Array:
    """Divide integers, rounding towards zero."""
    if not np.all(b):
        raise ZeroDivisionError("integer division by zero")
    if a.dtype.kind == "u":
        return a // b
    wide = [np.abs(each.astype(np.int64)).view(np.uint64) for each in (a, b)]  # the lowest value is its own negative
    found = (wide[0] // wide[1]).view(np.int64)
    return np.where((a < 0) != (b < 0), -found, found).astype(a.dtype)


def remainder(a: Array, b: Array) -> Array:
    return a - divided(a, b) * b


def high(a: Array, b: Array) -> Array:
    """The upper half of a product."""
    bits = 8 * a.dtype.itemsize
    if bits < 64:
        wide = np.int64 if a.dtype.kind == "i" else np.uint64
        return (a.astype(wide) * b.astype(wide) >> wide(bits)).astype(a.dtype)
    products = [int(x) * int(y) >> 64 for x, y in np.broadcast(a, b)]
    return np.array(products, a.dtype)


def left(a: Array, by: Any) -> Array:
    """Shift left; shifts by the width or more give 0."""
    bits = 8 * a.dtype.itemsize
    if np.ndim(by) == 0:
        return a << a.dtype.type(by) if by < bits else np.zeros_like(a)
    return np.where(by < bits, a << np.minimum(by, bits - 1).astype(a.dtype), a.dtype.type(0))


def right(a: Array, by: Any) -> Array:
    """Shift right; shifts by the width or more give 0, or the sign."""
    bits = 8 * a.dtype.itemsize
    shifted = a >> np.minimum(by, bits - 1).astype(a.dtype)
    return shifted if a.dtype.kind == "i" else np.where(by < bits, shifted, a.dtype.type(0))


def permuted(a: Array, b: Array, selector: Any) -> Array:
    """prmt: four of the eight bytes of b and a; a selector's top bit selects copies of the byte's sign."""
    both = a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32)
    found = np.zeros(a.shape, np.uint32)
    for place in range(4):
        nibble = np.uint64(selector >> 4 * place) if np.ndim(selector) == 0 else selector.astype(np.uint64) >> 4 * place
        byte = both >> (nibble & np.uint64(7)) * np.uint64(8) & np.uint64(255)
        sign = (byte >> np.uint64(7)) * np.uint64(255)
        byte = np.where(nibble & np.uint64(8), sign, byte)
        found |= byte.astype(np.uint32) << np.uint32(8 * place)
    return found


def inserted(a: Array, b: Array, start: Any, length: Any) -> Array:
    """bfi: b with the low ``length`` bits of a inserted from bit ``start`` on; these are plain numbers."""
    bits = 8 * b.dtype.itemsize
    start, length = int(start) & 255, int(length) & 255
    mask = (1 << min(start + length, bits)) - (1 << min(start, bits))
    return left(a, start) & b.dtype.type(mask) | b & b.dtype.type(~mask % (1 << bits))


def saturated(a: Array) -> Array:
    """Saturate to a byte, in 32 bits."""
    return np.clip(a, 0, 255).view(np.uint32)


def fused(a: Array, b: Array, c: Array) -> Array:
    """fma.rn.f32: rounded once.

    The product is exact in 64 bits; the sum is rounded to odd there, so that rounding it to 32 bits is correct.
    """
    product, c = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = product + c
    of_c = total - product
    error = (product - (total - of_c)) + (c - of_c)  # Knuth's two-sum: exact
    words = total.view(np.int64)
    inexact = np.isfinite(total) & (error != 0) & (words & 1 == 0)
    away = (error > 0) == (total > 0)  # away from zero
    return np.where(inexact, np.where(away, words + 1, words - 1), words).view(np.float64).astype(np.float32)


def to_integer(a: Array, dtype: Any) -> Array:
    """Convert whole values to integers, saturating; NaN becomes 0 or, if 64 bits are involved, the lowest value."""
    limits = np.iinfo(dtype)
    lowest, end = float(limits.min), float(limits.max) if limits.bits < 64 else 2.0 ** (63 if limits.min else 64)
    whole = a.astype(np.float64)
    inside = (whole >= lowest) & (whole <= end if limits.bits < 64 else whole < end)
    found = np.where(inside, whole, 0.0).astype(dtype)
    found[whole < lowest] = limits.min
    found[(whole > lowest) & ~inside] = limits.max
    if a.dtype == np.float64 or limits.bits == 64:
        found[np.isnan(whole)] = limits.min or 1 << limits.bits - 1
    return found


def funnelled(low: Array, high: Array, by: Array) -> Array:
    """shf.l.wrap: the upper word of (high, low), shifted left by ``by`` modulo 32."""
    both = high.astype(np.uint64) << np.uint64(32) | low.astype(np.uint64)
    return (both << (by & np.uint32(31)).astype(np.uint64) >> np.uint64(32)).astype(np.uint32)


def counted(a: Array) -> Array:
    """popc: the number of set bits."""
    return _bits(a).sum(1).astype(np.uint32)


def leading_zeros(a: Array) -> Array:
    """clz: the number of leading zeros."""
    return (32 - np.frexp(a.astype(np.float64))[1]).astype(np.uint32)


def found(a: Array) -> Array:
    """bfind.shiftamt: the left shift that makes the highest set bit the top one."""
    return np.where(a == 0, np.uint32(0xFFFFFFFF), leading_zeros(a))


def mirrored(a: Array) -> Array:
    """brev: reverse the bits."""
    return np.packbits(_bits(a)[:, ::-1], axis=1).view(">u4")[:, 0].astype(np.uint32)


def _bits(a: Array) -> Array:
    return np.unpackbits(a.astype(">u4").view(np.uint8).reshape(-1, 4), axis=1)
