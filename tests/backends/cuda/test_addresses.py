"""Kernels beyond 32 bits of address; memory that nobody touches costs nothing."""

import mmap
from typing import Any

import numpy as np
import pytest

from accel.backends.cuda import host
from accel.backends.cuda.descriptors import (
    EFFECT,
    EFFECT_OPS,
    LINES,
    MODES,
    PASS,
    PATCH,
    TILE,
    TILE_COLUMNS,
    TILE_ROWS,
)
from tests.support.cuda import host_only, needs_compiler

pytestmark = [needs_compiler, host_only]


def run_block(kernel: str, item: Any) -> None:
    owners = np.zeros(1, np.int32)
    host.function(kernel)(1, item.ctypes.data, owners.ctypes.data)


def item_of(kind: Any, **fields: Any) -> Any:
    item = np.zeros(1, kind)
    for name, value in fields.items():
        item[name] = value
    return item


def effect(**fields: Any) -> Any:
    return item_of(
        EFFECT, **{"op": EFFECT_OPS["COPIED"], "channels": 3, "output_channels": 3, "across": 1, "blocks": 1, **fields}
    )


def untouched(*shape: int) -> Any:
    """Zeros that take memory where they are written."""
    return np.frombuffer(mmap.mmap(-1, int(np.prod(shape))), np.uint8).reshape(shape)


@pytest.mark.parametrize("op", ["COPIED", "FIXED", "WARPED", "TRANSPOSED"])
def test_a_source_beyond_two_gigabytes(op: str) -> None:
    rows, columns = (18_000, 40_000) if op == "TRANSPOSED" else (40_000, 18_000)
    pixels = untouched(rows, columns, 3)
    pixels[-9:, -7:] = corner = np.random.default_rng(0).integers(1, 256, (9, 7, 3), np.uint8)
    height, width = (7, 9) if op == "TRANSPOSED" else (9, 7)
    out = np.zeros((height, width, 3), np.uint8)
    numbers = {
        "FIXED": ((columns - 7) << 16, 1 << 16, 0, (rows - 9) << 16, 0, 1 << 16),
        "WARPED": (1, 0, columns - 7, 0, 1, rows - 9),
    }.get(op, ())
    first = 0 if numbers else (rows - 9) * columns * 3 + (columns - 7) * 3
    run_block(
        "effects",
        effect(
            source=pixels.ctypes.data + first, pitch=columns * 3, rows=rows, columns=columns, target=out.ctypes.data,
            height=height, width=width, op=EFFECT_OPS[op], numbers=(*numbers, *(0,) * (8 - len(numbers))),
        ),
    )  # fmt: skip
    assert np.array_equal(out, corner.transpose(1, 0, 2) if op == "TRANSPOSED" else corner)


def test_a_result_beyond_four_gigabytes() -> None:
    side = 38_400
    across = side // TILE
    source = np.random.default_rng(0).integers(1, 256, (TILE, TILE, 3), np.uint8)
    out = untouched(side, side, 3)
    first = (side - TILE) * (TILE * 3 + 3)  # so that the last tile shows the source
    run_block(
        "effects",
        effect(
            source=source.ctypes.data - first, pitch=TILE * 3, rows=side, columns=side, target=out.ctypes.data,
            height=side, width=side, across=across, first_block=1 - across * across,
        ),
    )  # fmt: skip
    assert np.array_equal(out[-TILE:, -TILE:], source)


@pytest.mark.parametrize("planar", [0, 1])
def test_a_patch_beyond_four_gigabytes(planar: int) -> None:
    side = 38_000
    values = np.random.default_rng(0).integers(1, 256, (3, LINES, 5), np.uint8)
    out = untouched(3, side, side) if planar else untouched(side, side, 3)
    item = item_of(
        PATCH, target=out.ctypes.data, values=values.ctypes.data, channels=3, height=side, width=side,
        top=side - LINES, left=side - 5, rows=LINES, columns=5, given_rows=LINES, given_columns=5,
        itemsize=1, planar=planar, first_block=-2 * planar,
    )  # fmt: skip
    run_block("patch", item)
    last = out[2, -LINES:, -5:] if planar else out[-LINES:, -5:].transpose(2, 0, 1)
    assert np.array_equal(last, values[2] if planar else values)


def stage(**fields: Any) -> Any:
    """A stage that copies, for a kernel on its own."""
    return item_of(PASS, **{"mode": MODES["COPY"], "itemsize": 1, "across": 1, "planar": 1, **fields})


def axis(start: int, stride: int) -> tuple[int, ...]:
    return 0, 0, 0, stride, start, 1, 0, 0


def test_a_source_of_a_pass_beyond_two_gigabytes() -> None:
    height, width = 40_000, 18_000
    pixels = untouched(height, width, 3)
    pixels[-9:, -7:] = corner = np.random.default_rng(0).integers(1, 256, (9, 7, 3), np.uint8)
    out = np.zeros((3, 9, 7), np.uint8)
    where = {"source": pixels.ctypes.data, "target": out.ctypes.data, "height": 9, "width": 7}
    run_block("pass3", stage(**where, rows=axis(height - 9, width * 3), columns=axis(width - 7, 3)))
    assert np.array_equal(out, corner.transpose(2, 0, 1))


@pytest.mark.parametrize("planar", [True, False])
def test_a_result_of_a_pass_beyond_four_gigabytes(planar: bool) -> None:
    side = 38_400  # whole tiles; three channels of bytes are 4.4e9
    rows, columns = side // TILE_ROWS, side // TILE_COLUMNS
    source = np.random.default_rng(0).integers(1, 256, (TILE_ROWS, TILE_COLUMNS, 3), np.uint8)
    out = untouched(side * side * 3)
    item = stage(  # the last tile shows the source
        source=source.ctypes.data, target=out.ctypes.data, height=side, width=side, across=columns, planar=planar,
        first_block=1 - rows * columns, rows=axis(TILE_ROWS - side, TILE_COLUMNS * 3),
        columns=axis(TILE_COLUMNS - side, 3),
    )  # fmt: skip
    run_block("pass3", item)
    image = out.reshape(3, side, side).transpose(1, 2, 0) if planar else out.reshape(side, side, 3)
    assert np.array_equal(image[-TILE_ROWS:, -TILE_COLUMNS:], source)
