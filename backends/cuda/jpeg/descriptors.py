"""Descriptors of pictures for the kernels, as NumPy structures: as in ``picture.h``."""

from __future__ import annotations

import numpy as np

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


def _integers(*names: str) -> list[tuple[str, type]]:
    return [(name, np.int32) for name in names]


STATE = np.dtype(_integers("reason", "stop", "bits", "unused"))

COMPONENT = np.dtype(
    [
        ("plane", np.uint64),
        *_integers("h", "v", "slot", "h_ratio", "v_ratio", "upsampling", "columns", "rows"),
        *_integers("left", "right", "top", "bottom", "stride", "quant", "first_group", "unused"),
    ]
)

PICTURE = np.dtype(
    [
        *[
            (name, np.uint64)
            for name in (
                *("file", "stream", "tiles", "edges", "spans", "tables", "dc", "coefficients", "pixels", "state"),
            )
        ],
        *_integers("scan", "size", "tile_count", "first_tile", "intervals", "restart", "first_span"),
        *_integers(
            "mcus", "mcu_columns", "slots", "period", "unused", "mcu_left", "mcu_right", "mcu_top", "mcu_bottom"
        ),
        ("huffman", np.int32, TABLES),
        ("dc_tables", np.int32),
        ("ac_tables", np.int32),
        *_integers("colour", "channels", "top", "left", "height", "width", "first_group", "first_pixel"),
        ("components", COMPONENT, COMPONENTS),
    ]
)
