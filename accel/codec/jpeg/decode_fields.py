"""The parameters of ``layout.prepare`` and ``scan.decode_scan``, for their callers, and the latter's results."""

PREPARE = "u1[1] i8[1]w i8[2]w bool int int int int"
DECODE = (
    "u1[1] i8[1] i8[2] int int u8[2]w u4[2]w u1[1] i2[2] i2[2]w i2[1]w i8[2]w i8[1]w u1[1]w i8[1]w u4[1]w u1[1]w u1[1]w"
    " i8[1]w i4[1]w u8[1]w u2[1]w int i8[1]w u1[3]w"
)
MEMORY, ENDS, PLANES, INDEX, HEIGHT, SINK, OUT = 5, 14, 17, 21, 22, 23, 24
"""Places of parameters in ``DECODE``; from MEMORY up to INDEX it is working memory."""

TAKE_BAND = "int int i8[1]w"
"""The parameters of a sink: a band's first row, counted in the region; its number of rows; and the sink's own words.

A sink returns 0, or any other number to stop decoding."""

WORKING = (
    *("look", "codes", "order", "idct", "quant", "block", "slots", "state", "spare", "ends", "stuffed", "stream"),
    *("planes", "trail", "points", "sums"),
)
"""The names of the working memory, in the order of the parameters from MEMORY on."""

GOOD, USED, GROWN, DROPPED = 1, 2, 4, 8
"""Bits of the result; all but the first one are about the index (scan.py)."""
