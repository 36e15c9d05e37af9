"""The parameters of a fused pass (``pass_image.run_pass``), for who calls it, and what its workspace begins with."""

SIGNATURE = (
    "u1[3] int int int f8 f8 int i4[1] int int int f8 f8 int i4[1] int bool u1[2] any[2] int f4[2] any[3]w bool"
    " int u1[1]w"
)
AXES, AXIS, ROWS_FIRST, OUT, PART, SCRATCH = 1, 7, 16, 21, 23, 24
"""Where the axes are, and of how many parameters each consists; and others."""

ALL, BEGIN, END = range(3)
"""What of the pass a call does. Between the two halves ``take_rows`` is given the image, a band of rows at a time."""

TAKE_ROWS = "int int"
"""The parameters of ``pass_image.take_rows``."""

BAND, BEHIND, LEAST = 16, 64, 16
"""Rows of a band; bytes of memory behind them, which may be read; rows, and bytes of each, that are not too few."""

# Words at the beginning of a workspace, int64 [STATE]: what is known before a pixel is read (``pass_setup``).
# IMAGE: the address of the first pixel that is needed, in the order of the view's rows and the source's columns, and
# STRIDE, from row to row; ROWS, BYTES: how many are needed, of each row; HEIGHT, WIDTH: the same of what the resize
# works on, and BEYOND: where that memory ends.  Row p of the view is row ``p - TOP``, column p is ``FIRST + STEP * p``.
IMAGE, STRIDE, ROWS, BYTES, HEIGHT, WIDTH, BEYOND, TOP, FIRST, STEP, CHANNELS = range(11)
# Whether the image is small and moves, axes are resampled, and rows before columns; resampled positions that are shown:
# the first ones, and how many.
SMALL, BY_ROWS, BY_COLS, IN_ROWS_FIRST, Y_FIRST, X_FIRST, SHOWN_ROWS, SHOWN_COLS = range(11, 19)
# Of both axes' coefficients: taps at most, and bits after the point.  QUADS, COUNT: of ``pass_dots`` and
# ``pass_columns``, or 0.
ROW_MOST, ROW_SHIFT, COL_MOST, COL_SHIFT, QUADS, COUNT = range(19, 25)
# Addresses in the workspace; MIDDLE_WIDTH: bytes from row to row of MIDDLE.
COPY, SHRUNK, TILE, SUMS, GROUPS, MIDDLE, MIDDLE_WIDTH, LINE, ROW_MEMORY, COL_MEMORY, WEIGHTS, PROOF, GATHERED = range(
    25, 38
)
STATE = 38
