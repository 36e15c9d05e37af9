"""The inverse DCT of one block: libjpeg-turbo's "islow" (jidctint.c, after Loeffler, Ligtenberg and Moschytz), exact.

Integer sums and products commute, so any arrangement of the same constants between the two roundings (after the
columns and after the rows) gives libjpeg's samples, as long as nothing overflows.  libjpeg-turbo's SIMD code keeps 16
bits in places: a block that could leave them there is refused, since its samples depend on the processor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .lanes import BYTE, Lanes, load
from .memory import step

CONSTANT_BITS = 13
PASS1_BITS = 2
# |output of the column pass| <= 4 * sqrt(2) * cos(pi / 16) * (sum of the column's magnitudes) + 1, and the row pass adds
# two of them four columns apart: below this sum for both columns together that stays below 2**15.
SAFE_SUM = 5900
MAX_QUANT = 8191  # keeps the check itself within 32 bits


def idct_1d(x: Sequence[Lanes], bias: int, shift: int) -> list[Lanes]:
    """Eight lines of coefficients to eight of samples: (jidctint.c's sums + bias) >> shift."""
    z1 = (x[2] + x[6]) * 4433
    low, high = z1 - x[6] * 15137, z1 + x[2] * 6270
    total, difference = ((x[0] + x[4]) << CONSTANT_BITS) + bias, ((x[0] - x[4]) << CONSTANT_BITS) + bias
    even = (total + high, difference + low, difference - low, total - high)

    z5 = (x[7] + x[3] + x[5] + x[1]) * 9633
    z1, z2 = (x[7] + x[1]) * 7373, (x[5] + x[3]) * 20995
    z3, z4 = z5 - (x[7] + x[3]) * 16069, z5 - (x[5] + x[1]) * 3196
    odd = (
        x[1] * 12299 - z1 + z4,
        x[3] * 25172 - z2 + z3,
        x[5] * 16819 - z2 + z4,
        x[7] * 2446 - z1 + z3,
    )
    lines = [even[i] + odd[i] for i in range(4)] + [even[i] - odd[i] for i in (3, 2, 1, 0)]
    return [line >> shift for line in lines]


def transpose(lines: Sequence[Lanes]) -> list[Lanes]:
    """An 8 x 8 matrix's transpose, by three perfect shuffles."""
    low = [i // 2 + 8 * (i % 2) for i in range(8)]
    high = [4 + i for i in low]
    for _ in range(3):
        lines = [lines[i // 2].shuffle(low if i % 2 == 0 else high, lines[i // 2 + 4]) for i in range(8)]
    return list(lines)


@intrinsic  # type: ignore[untyped-decorator]
def idct_block(typing_context: Any, block: Any, quant: Any, target: Any, stride: Any) -> Any:
    """Samples of block (int16[64]) * quant (int32[64]), to 8 rows at target; the block is cleared.

    All are pointers.  False where libjpeg-turbo's arithmetic could overflow.
    """

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        block, quant, target, stride = arguments
        rows = []
        for i in range(8):
            at = step(builder, block, 16 * i)
            raw = load(builder, at, 8, 16)
            rows.append(raw.widen(32, signed=True) * load(builder, step(builder, quant, 32 * i), 8, 32))
            (raw - raw).store(at)
        sums = rows[0].magnitude()
        for row in rows[1:]:
            sums = sums + row.magnitude()
        sums = sums + sums.shuffle([4, 5, 6, 7, 0, 1, 2, 3])
        bad = builder.icmp_unsigned(">", sums.value, sums.constant(SAFE_SUM))
        safe = builder.icmp_unsigned("==", builder.bitcast(bad, BYTE), ir.Constant(BYTE, 0))
        shift = CONSTANT_BITS - PASS1_BITS
        columns = transpose(idct_1d(rows, 1 << (shift - 1), shift))
        shift = CONSTANT_BITS + PASS1_BITS + 3
        samples = idct_1d(columns, (128 << shift) + (1 << (shift - 1)), shift)
        for line in transpose([s.clamp(0, 255).narrow(8) for s in samples]):
            line.store(target)
            target = step(builder, target, stride)
        return safe

    return types.boolean(block, quant, target, types.uint64), generate
