"""Vector primitives on float32: weighted sums, and their rounding to bytes.

Generic LLVM vector IR, as in ``backends/cpu/simd.py``. Places are in arrays, which must stay alive; the caller must see
to it that every index lies inside.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from accel.system.native.intrinsics import emitted, splat


@emitted(types.float32, types.float32, types.float32, types.float32)
def fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` of float32, rounded once."""
    return builder.fma(a, b, c)


LANES, BLOCK = 16, 64
_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_BYTES, _WORDS = (ir.VectorType(ir.IntType(bits), LANES) for bits in (8, 32))


def _call(builder: Any, name: str, *args: Any) -> Any:
    """Call an LLVM intrinsic of vectors of floats."""
    kind = ir.FunctionType(_FLOATS, [_FLOATS] * len(args))
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{LANES}f32"), args)


def _place(context: Any, builder: Any, array: tuple[Any, Any], index: Any, kind: Any) -> Any:
    """The address of an array's element, as a pointer to several elements."""
    type_, value = array
    data = context.make_array(type_)(context, builder, value).data
    return builder.bitcast(builder.gep(data, [index]), kind.as_pointer())


def _weighted_sums(rows: int) -> Any:
    """The weighted sums of ``BLOCK // rows`` neighbouring columns, for 1 or 2 rows, all kept in registers."""

    @intrinsic
    def weighted_sums(
        typing: Any, source: Any, at: Any, stride: Any, weights: Any, target: Any, to: Any, pitch: Any
    ) -> Any:
        kind = _BYTES if source.dtype == types.uint8 else _FLOATS

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            arrays = list(zip(signature.args, args, strict=True))
            _, at, stride, _, _, to, pitch = args

            def plus(place: Any, count: int) -> Any:
                return builder.add(place, ir.Constant(place.type, count))

            totals = [(row, n) for row in range(rows) for n in range(BLOCK // rows // LANES)]
            sums = {each: cgutils.alloca_once(builder, _FLOATS) for each in totals}
            for total in sums.values():
                builder.store(ir.Constant(_FLOATS, None), total)
            count = builder.extract_value(context.make_array(signature.args[3])(context, builder, args[3]).shape, 0)
            with cgutils.for_range(builder, builder.sub(count, ir.Constant(count.type, rows - 1))) as loop:
                begin = builder.add(at, builder.mul(loop.index, stride))
                places = [plus(loop.index, rows - 1 - row) for row in range(rows)]
                factors = [builder.load(_place(context, builder, arrays[3], k, ir.FloatType())) for k in places]
                factors = [splat(builder, factor, LANES) for factor in factors]
                for n in range(BLOCK // rows // LANES):
                    values = builder.load(_place(context, builder, arrays[0], plus(begin, LANES * n), kind), align=1)
                    if kind is _BYTES:
                        values = builder.sitofp(builder.zext(values, _WORDS), _FLOATS)
                    for row, factor in enumerate(factors):
                        total = sums[row, n]
                        builder.store(_call(builder, "fma", values, factor, builder.load(total)), total)
            for row, n in totals:
                index = builder.add(plus(to, LANES * n), builder.mul(pitch, ir.Constant(pitch.type, row)))
                builder.store(builder.load(sums[row, n]), _place(context, builder, arrays[4], index, _FLOATS)).align = 1
            return context.get_dummy_value()

        integer = types.int64
        return types.void(source, integer, integer, weights, target, integer, integer), generate

    return weighted_sums


# target[to + row * pitch + j] = sum(weights[rows - 1 - row + k] * source[at + k * stride + j] for all k), rows below
# 1 or 2 and j below 64 or 32: products are added unrounded, and the arrays have room for it. For two rows there is a
# 0 before and behind the weights.
sum_row = _weighted_sums(1)
sum_two_rows = _weighted_sums(2)


@intrinsic
def round16(typing: Any, sums: Any, at: Any, dark: Any, bright: Any, target: Any, to: Any) -> Any:
    """Round 16 sums to bytes, half to even.

    Returns:
        A word with a bit for each sum whose distance from its rounded value is at least ``dark``, or ``bright`` if the
        sum is 127 or more.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        arrays = list(zip(signature.args, args, strict=True))
        _, at, dark, bright, _, to = args
        values = builder.load(_place(context, builder, arrays[0], at, _FLOATS), align=1)
        whole = _call(builder, "rint", values)
        levels = builder.trunc(builder.fptosi(whole, _WORDS), _BYTES)
        builder.store(levels, _place(context, builder, arrays[4], to, _BYTES)).align = 1
        half = ir.Constant(ir.FloatType(), 127.0)
        limits = builder.select(
            builder.fcmp_ordered("<", values, splat(builder, half, LANES)),
            splat(builder, dark, LANES),
            splat(builder, bright, LANES),
        )
        far = builder.fcmp_ordered(">=", _call(builder, "fabs", builder.fsub(values, whole)), limits)
        return builder.zext(builder.bitcast(far, ir.IntType(LANES)), ir.IntType(64))

    return types.uint64(sums, types.int64, types.float32, types.float32, target, types.int64), generate
