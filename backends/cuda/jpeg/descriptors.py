"""Descriptors of pictures for the kernels, and sizes that they know, as their sources declare them."""

from __future__ import annotations

from accel.backends.cuda.declarations import constant, structure

PICTURE, STATE = structure("jpeg/picture.h", "Picture"), structure("jpeg/picture.h", "State")
TILE_SIZE, SPAN_SIZE = (structure("jpeg/picture.h", name).itemsize for name in ("Tile", "Span"))
TABLE_SIZE = structure("jpeg/symbols.h", "Table").itemsize

COMPONENTS, TABLES, BLOCK, GROUP, PIXELS, SUBSEQUENCE, SPAN = (
    constant("jpeg/picture.h", name)
    for name in ("COMPONENTS", "TABLES", "BLOCK", "GROUP", "PIXELS", "SUBSEQUENCE", "SPAN")
)
