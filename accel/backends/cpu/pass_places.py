"""Pixels to values in places of their own (``accel.planning.places``): patches, tiles, parts of a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from accel.backends.cpu.pass_rows import PROOF_SIZE, stands_in, write_blocks, write_run
from accel.backends.cpu.simd import LANES, copy_bytes

_BLOCK = 32
"""Bytes that are copied by a few instructions."""


@njit
def _copy_run(source: int, target: int, count: int) -> None:
    """Copy ``count`` bytes; a call of memcpy would take longer than a patch's row."""
    if count < _BLOCK:
        copy_bytes(source, target, count)
        return
    for at in range(0, count - _BLOCK, _BLOCK):
        copy_bytes(source + at, target + at, 32)
    copy_bytes(source + count - _BLOCK, target + count - _BLOCK, 32)  # it may overlap the one before


@njit
def place_rows(
    pixels: Any,
    span: Any,
    columns: Any,
    rows: Any,
    channels: Any,
    copies: Any,
    table: Any,
    factors: Any,
    out: Any,
    scratch: Any,
) -> Any:
    """Look up rows of an image and put each value where its channel, row and column say.

    Args:
        pixels: uint8 [height, width, channels of the table].
        span: the first column that is needed, how many are, the length of a run, the bytes of an item of the table.
        columns: int64 [runs, 2], the column that each run of neighbours begins at, and what it adds.
        rows, channels: int64 [n, 2], positions, and what each adds. copies: [n, 2], of which only the latter is used.
        table: [channels, 256]. factors: the table's (``passes.factors_of``).
        out: uint8 [bytes]; what is added is in items. scratch: uint8 [bytes].

    Returns:
        0; with nothing written, the bytes of scratch that are necessary, or -1 if arguments do not fit.
    """
    depth, width = table.shape[0], pixels.shape[1]
    first, count, run, item = span
    memory = np.int64(scratch.ctypes.data)
    line, target = memory + PROOF_SIZE, np.int64(out.ctypes.data)
    if pixels.shape[2] != depth or first < 0 or first + count > width:
        return -1
    if scratch.size < PROOF_SIZE + depth * count * item:
        return PROOF_SIZE + depth * count * item
    source, pitch = np.int64(pixels.ctypes.data) + first * depth, width * depth
    by_blocks = count >= LANES and stands_in(table, item, factors, depth, True, memory)
    for r in range(rows.shape[0]):
        start = source + rows[r, 0] * pitch
        if by_blocks:
            write_blocks(start, depth, factors, item, line, 0, count, 1, count)
        else:
            write_run(start, depth, table, item, line, 0, count, 1, count)
        for c in range(channels.shape[0]):
            plane = line + (channels[c, 0] * count - first) * item
            for k in range(copies.shape[0]):
                place = target + (rows[r, 1] + channels[c, 1] + copies[k, 1]) * item
                for x in range(columns.shape[0]):
                    _copy_run(plane + columns[x, 0] * item, place + columns[x, 1] * item, run * item)
    return 0
