"""Vectors of integers for numba code: a thin layer of overloaded operators over LLVM's vector instructions.

Numba has no vector type, and LLVM does not vectorise loops over small arrays reliably.  So the few kernels whose speed
matters are written with `Lanes` and wrapped as intrinsics; LLVM turns them into SSE, AVX or NEON.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from llvmlite import ir

from accel.system.native.intrinsics import FEATURES, called

BYTE = ir.IntType(8)
WORD = ir.IntType(64)

_HAS_AVX2 = "+avx2" in FEATURES
HAS_VBMI = "+avx512vbmi" in FEATURES and "+avx512bw" in FEATURES
"""Whether one instruction permutes the bytes of two vectors of 512 bits."""


class Lanes:
    """A vector of integers of equal width, one per lane."""

    def __init__(self, builder: ir.IRBuilder, value: Any) -> None:
        self.builder = builder
        self.value = value

    def constant(self, number: int) -> Any:
        """The number in every lane, as an LLVM value."""
        kind = self.value.type
        return ir.Constant(kind, [number] * kind.count)

    def _of(self, value: Any) -> Lanes:
        return Lanes(self.builder, value)

    def _operand(self, other: Lanes | int) -> Any:
        return self.constant(other) if isinstance(other, int) else other.value

    def __add__(self, other: Lanes | int) -> Lanes:
        return self._of(self.builder.add(self.value, self._operand(other)))

    def __sub__(self, other: Lanes | int) -> Lanes:
        return self._of(self.builder.sub(self.value, self._operand(other)))

    def __mul__(self, other: Lanes | int) -> Lanes:
        return self._of(self.builder.mul(self.value, self._operand(other)))

    def __rshift__(self, count: int) -> Lanes:
        return self._of(self.builder.ashr(self.value, self.constant(count)))

    def __lshift__(self, count: int) -> Lanes:
        return self._of(self.builder.shl(self.value, self.constant(count)))

    def __or__(self, other: Lanes) -> Lanes:
        return self._of(self.builder.or_(self.value, other.value))

    def clamp(self, low: int, high: int) -> Lanes:
        below = self.builder.icmp_signed("<", self.value, self.constant(low))
        value = self.builder.select(below, self.constant(low), self.value)
        above = self.builder.icmp_signed(">", value, self.constant(high))
        return self._of(self.builder.select(above, self.constant(high), value))

    def magnitude(self) -> Lanes:
        negative = self.builder.icmp_signed("<", self.value, self.constant(0))
        return self._of(self.builder.select(negative, self.builder.neg(self.value), self.value))

    def widen(self, bits: int, signed: bool = False) -> Lanes:
        kind = ir.VectorType(ir.IntType(bits), self.value.type.count)
        extend = self.builder.sext if signed else self.builder.zext
        return self._of(extend(self.value, kind))

    def narrow(self, bits: int) -> Lanes:
        kind = ir.VectorType(ir.IntType(bits), self.value.type.count)
        return self._of(self.builder.trunc(self.value, kind))

    def pack(self, other: Lanes) -> Lanes:
        """Pack two vectors of 256 bits to lanes of half the width, saturated: signed 32 to 16 bits, 16 to unsigned 8.

        In the order of AVX2's instruction: half of self, half of other, the other half of self, of other.  Without
        AVX-512 LLVM finds that instruction by itself; with it, it prefers four slower ones.  Vectors of 512 bits (only
        if HAS_VBMI) are packed quarter by quarter in turns.
        """
        count, bits = self.value.type.count, self.value.type.element.width
        if _HAS_AVX2:
            kind = ir.VectorType(ir.IntType(bits // 2), 2 * count)
            level = "avx512" if count * bits == 512 else "avx2"
            name = f"llvm.x86.{level}.pack" + ("ssdw" if bits == 32 else "uswb") + (".512" if level == "avx512" else "")
            function = called(self.builder, name, kind, *[self.value.type] * 2)
            return self._of(self.builder.call(function, [self.value, other.value]))
        half = count // 2
        order = [i % half + count * (i // half % 2) + half * (i // count) for i in range(2 * count)]
        low, high = (-(1 << 15), (1 << 15) - 1) if bits == 32 else (0, 255)
        return self.shuffle(order, other).clamp(low, high).narrow(bits // 2)

    def shuffle(self, order: Sequence[int], other: Lanes | None = None) -> Lanes:
        """Lane i of the result is lane order[i] of self followed by other."""
        mask = ir.Constant(ir.VectorType(ir.IntType(32), len(order)), list(order))
        second = self.value if other is None else other.value
        return self._of(self.builder.shuffle_vector(self.value, second, mask))

    def join(self, other: Lanes) -> Lanes:
        return self.shuffle(range(2 * self.value.type.count), other)

    def reshape(self, count: int, bits: int) -> Lanes:
        """The same bits as `count` lanes of `bits`."""
        return self._of(self.builder.bitcast(self.value, ir.VectorType(ir.IntType(bits), count)))

    def dot_lanes(self, other: Lanes) -> Lanes:
        """Products of 16-bit lanes, in 32 bits, summed two by two (LLVM knows it as pmaddwd)."""
        products = self.widen(32, signed=True) * other.widen(32, signed=True)
        count = self.value.type.count
        return products.shuffle(range(0, count, 2)) + products.shuffle(range(1, count, 2))

    def dot(self, even: int, odd: int) -> Lanes:
        """``dot_lanes`` with two constants, for the even and the odd lanes."""
        kind = self.value.type
        return self.dot_lanes(self._of(ir.Constant(kind, [even, odd] * (kind.count // 2))))

    def high_product(self, factor: int) -> Lanes:
        """16-bit lanes times a constant, over 65536 (LLVM knows it as pmulhw)."""
        return (self.widen(32, signed=True) * factor >> 16).narrow(16)

    def high_half(self) -> Lanes:
        """The upper 16 bits of 32-bit lanes."""
        if not HAS_VBMI:
            return (self >> 16).narrow(16)
        count = 2 * self.value.type.count
        return self.reshape(count, 16).shuffle(range(1, count, 2))

    def rounded_product(self, factor: int) -> Lanes:
        """16-bit lanes times a constant, over 32768, rounded; both below 2**14 in magnitude (pmulhrsw)."""
        if HAS_VBMI and 16 * self.value.type.count == 512:
            function = called(self.builder, "llvm.x86.avx512.pmul.hr.sw.512", *[self.value.type] * 3)
            return self._of(self.builder.call(function, [self.value, self.constant(factor)]))
        return (self * 2).high_product(2 * factor) + 1 >> 1

    def dot_bytes(self, even: int, odd: int) -> Lanes:
        """Bytes times two constants, for the even and the odd lanes, in 16 bits, summed two by two (pmaddubsw).

        For vectors of 512 bits, if HAS_VBMI; the constants must be below 128, and no sum may exceed 2**15.
        """
        sums = ir.VectorType(ir.IntType(16), self.value.type.count // 2)
        factors = ir.Constant(self.value.type, [even, odd] * sums.count)
        function = called(self.builder, "llvm.x86.avx512.pmaddubs.w.512", sums, *[self.value.type] * 2)
        return self._of(self.builder.call(function, [self.value, factors]))

    def at_most(self, limit: int) -> Any:
        """One bit: whether no lane, as an unsigned number, exceeds the limit."""
        above = self.builder.icmp_unsigned(">", self.value, self.constant(limit))
        bits = ir.IntType(self.value.type.count)
        return self.builder.icmp_unsigned("==", self.builder.bitcast(above, bits), ir.Constant(bits, 0))

    def store(self, address: Any) -> None:
        pointer = self.builder.bitcast(address, self.value.type.as_pointer())
        self.builder.store(self.value, pointer, align=1)

    def store_lane(self, lane: int, address: Any) -> None:
        pointer = self.builder.bitcast(address, self.value.type.element.as_pointer())
        value = self.builder.extract_element(self.value, ir.Constant(ir.IntType(32), lane))
        self.builder.store(value, pointer, align=1)


def sum_of(terms: Sequence[Lanes]) -> Lanes:
    return reduce(lambda total, term: total + term, terms)


def load(builder: ir.IRBuilder, address: Any, count: int, bits: int) -> Lanes:
    """`count` integers of `bits` bits from an i8 pointer of any alignment."""
    kind = ir.VectorType(ir.IntType(bits), count)
    return Lanes(builder, builder.load(builder.bitcast(address, kind.as_pointer()), align=1))
