"""Descriptors of pictures for the kernels, as NumPy structures: as in ``picture.h``."""

from __future__ import annotations

import numpy as np

from accel.backends.cuda.descriptors import fields

COMPONENTS = 3
TABLES = 2 * COMPONENTS
MCU_BLOCKS = 10
BLOCK = 64
GROUP = 32
PIXELS = 4
SUBSEQUENCE = 1024
SPAN = 16

TILE_SIZE, SPAN_SIZE, TABLE_SIZE = 16, 16, (2 << 10) + 2 * 4 * 17 + 2 * 256
"""Sizes of ``Tile``, ``Span`` and ``Table``."""

STATE = np.dtype(fields(np.int32, "reason", "stop", "bits", "unused"))

COMPONENT = np.dtype(
    [
        ("plane", np.uint64),
        *fields(np.int32, "h", "v", "slot", "h_ratio", "v_ratio", "upsampling", "columns", "rows"),
        *fields(np.int32, "left", "right", "top", "bottom", "stride", "quant", "first_group", "unused"),
    ]
)

PICTURE = np.dtype(
    [
        *fields(np.uint64, "file", "stream", "tiles", "edges", "spans", "tables"),
        *fields(np.uint64, "dc", "coefficients", "pixels", "state"),
        *fields(np.int32, "scan", "size", "tile_count", "first_tile", "intervals", "restart", "first_span"),
        *fields(np.int32, "mcus", "mcu_columns", "slots", "period", "unused"),
        *fields(np.int32, "mcu_left", "mcu_right", "mcu_top", "mcu_bottom"),
        ("huffman", np.int32, TABLES),
        *fields(np.int32, "dc_tables", "ac_tables"),
        *fields(np.int32, "colour", "channels", "top", "left", "height", "width", "first_group", "first_pixel"),
        ("components", COMPONENT, COMPONENTS),
    ]
)
