"""A digest of a file's bytes, 64 bits, at the speed of memory; after XXH3 (Y. Collet), whose values it does not share.

A change within eight bytes that lie at a multiple of eight from a block's start always changes it; any other change
does, but for one chance in 2**64.  It does not protect from files that are forged to have another one's digest.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types

from accel.system.native.intrinsics import emitted

from .memory import advanced, i64, load_big_endian, pointer_to, step, u64
from .simd import WORD, load

_STRIPE = 64
_STRIPES = 16
BLOCK = _STRIPE * _STRIPES
_LANES = ir.VectorType(WORD, 8)
_PRIME = 0x9E3779B1


def _random(count: int) -> list[int]:
    """The first ``count`` numbers of SplitMix64."""
    numbers, state = [], 0
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        numbers.append(z ^ z >> 31)
    return numbers


_KEYS = [ir.Constant(_LANES, _random(8 * (_STRIPES + 1))[8 * i : 8 * i + 8]) for i in range(_STRIPES + 1)]
_FIRST, _SECOND = u64(0x9E3779B185EBCA87), u64(0xC2B2AE3D27D4EB4F)


def _all(number: int) -> ir.Constant:
    return ir.Constant(_LANES, [number] * 8)


@emitted(types.void, None, None)
def _absorb(builder: ir.IRBuilder, source: Any, sums: Any) -> None:
    """Add the BLOCK bytes at `source` to the eight sums (uint64[8])."""
    total = load(builder, sums, 8, 64).value
    for i in range(_STRIPES):
        words = load(builder, step(builder, source, _STRIPE * i), 8, 64)
        keyed = builder.xor(words.value, _KEYS[i])
        product = builder.mul(builder.and_(keyed, _all(0xFFFFFFFF)), builder.lshr(keyed, _all(32)))
        total = builder.add(total, builder.add(product, words.shuffle([1, 0, 3, 2, 5, 4, 7, 6]).value))
    total = builder.xor(builder.xor(total, builder.lshr(total, _all(47))), _KEYS[_STRIPES])
    builder.store(builder.mul(total, _all(_PRIME)), builder.bitcast(sums, _LANES.as_pointer()), align=1)


@njit(forceinline=True)
def _joined(total: Any, word: Any) -> Any:
    total = (total ^ word) * _FIRST
    return (total ^ (total >> u64(32))) * _SECOND


@njit
def digest(data: Any, sums: Any) -> Any:
    """The digest of uint8[n] as uint64, which is also left in sums[0]; `sums`: uint64[8], working memory."""
    size = len(data)
    total = _joined(u64(size), _FIRST)
    if size < BLOCK:
        for i in range(size):
            total = _joined(total, u64(data[i]))
        sums[0] = total
        return total
    source, places = pointer_to(data), pointer_to(sums)
    sums[:] = total
    for at in range(0, size - BLOCK, BLOCK):
        _absorb(advanced(source, at), places)
    _absorb(advanced(source, size - BLOCK), places)
    for i in range(8):
        total = _joined(total, sums[i])
    sums[0] = total
    return total


@njit
def digests(data: Any, begins: Any, counts: Any, ends: Any, found: Any, sums: Any) -> None:
    """Write the digests of the parts of several contents in `data` to `found`, int64.

    `begins`, `counts`: the offset of each content, and its number of parts, int64; `ends`: the ends of all parts, each
    as an offset in its content, uint32.
    """
    part = 0
    for content in range(len(begins)):
        at = begins[content]
        for _ in range(counts[content]):
            end = begins[content] + i64(ends[part])
            found[part] = i64(digest(data[at:end], sums))
            at, part = end, part + 1


@njit
def sound_parts(data: Any, ends: Any, digests: Any, first: int, last: int, sums: Any) -> int:
    """How many of the parts from `first` to before `last`, which `data` begins with, are sound before the first that
    is not: it has another digest, or is incomplete.

    `ends`: the ends of all parts, uint32, counted from the first part's beginning; `digests`: int64.
    """
    begin = int(ends[first - 1]) if first else 0
    at = 0
    for part in range(first, last):
        end = int(ends[part]) - begin
        if end < at or end > len(data) or digest(data[at:end], sums) != u64(digests[part]):
            return part - first
        at = end
    return last - first


@njit
def checksum(words: Any, first: int, last: int, total: Any) -> Any:
    """The checksum of words[first:last], uint16, continuing from the checksum `total`."""
    source = pointer_to(words)
    if first + 16 <= last:  # four sums at once: one would wait for its multiplications
        a, b, c, d = total, total, total, total
        while first + 16 <= last:
            a = _joined(a, load_big_endian(source, u64(first)))
            b = _joined(b, load_big_endian(source, u64(first + 4)))
            c = _joined(c, load_big_endian(source, u64(first + 8)))
            d = _joined(d, load_big_endian(source, u64(first + 12)))
            first += 16
        total = _joined(_joined(_joined(_joined(_FIRST, a), b), c), d)  # in which no two can change places
    while first + 4 <= last:
        total = _joined(total, load_big_endian(source, u64(first)))
        first += 4
    while first < last:
        total = _joined(total, u64(words[first]))
        first += 1
    return total
