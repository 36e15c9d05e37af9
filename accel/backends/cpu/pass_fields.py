"""The parameters of a fused pass (``pass_image.run_pass``), for its callers, and the state in its workspace."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

SIGNATURE = (
    "u1[3] int int int f8 f8 int i4[1] int int int f8 f8 int i4[1] int bool u1[2] any[2] int f4[2] any[3]w bool"
    " int u1[1]w"
)
AXES, AXIS, ROWS_FIRST, OUT, PART, SCRATCH = 1, 7, 16, 21, 23, 24
"""The positions of the first axis, of an axis's number of parameters, and of other parameters."""

ALL, BEGIN, END = range(3)
"""Parts of a pass: all of it in one call; or first its setup and last its remainder. Between these two calls
``take_rows`` is called for every band of the image's rows."""

TAKE_ROWS = "int int"
"""The parameters of ``pass_image.take_rows``."""

BAND, BEHIND, LEAST = 16, 64, 16
"""Rows of a band; bytes of readable memory that follow them; the least number of rows of a region that comes in bands,
and of bytes in each."""

# Words at the beginning of a workspace, int64 [STATE], which ``pass_setup`` fills before a pixel is read.
# IMAGE: the address of the first pixel that is needed, in the order of the view's rows and the source's columns;
# STRIDE: bytes from row to row; ROWS, BYTES: the rows that are needed, and the bytes of each; HEIGHT, WIDTH: rows, and
# bytes of each, of the image that the resize of columns reads; BEYOND: the end of that image's memory.
# Row p of the view is row ``p - TOP`` from IMAGE on, and its column p is column ``FIRST + STEP * p`` there.
IMAGE, STRIDE, ROWS, BYTES, HEIGHT, WIDTH, BEYOND, TOP, FIRST, STEP, CHANNELS = range(11)
# Whether the image is so small that it is copied, whether rows and columns are resampled, and rows before columns; the
# first row and the first column after resampling that are shown, and how many of each.
SMALL, BY_ROWS, BY_COLS, IN_ROWS_FIRST, Y_FIRST, X_FIRST, SHOWN_ROWS, SHOWN_COLS = range(11, 19)
# The most taps of a position, and the coefficients' bits after the point, for rows and columns.  QUADS, COUNT: the
# results of ``pass_dots.describe`` and ``pass_columns.weigh``; 0: not used.
ROW_MOST, ROW_SHIFT, COL_MOST, COL_SHIFT, QUADS, COUNT = range(19, 25)
# Addresses in the workspace; MIDDLE_WIDTH: bytes from row to row at MIDDLE.
COPY, SHRUNK, TILE, SUMS, GROUPS, MIDDLE, MIDDLE_WIDTH, LINE, ROW_MEMORY, COL_MEMORY, WEIGHTS, PROOF, GATHERED = range(
    25, 38
)
STATE = 38


class Axis(NamedTuple):
    """One axis of an image: a view of the source, resampled, then shown through a window.

    Position p of the view, below ``length``, is source position ``start + step * p`` (step 1 or -1).  ``span`` of the
    view, from ``begin`` on, is resampled to ``size`` positions, or not at all if it begins at 0 and equals ``size``.
    ``window`` is C-contiguous int32: the resampled position each output position shows, or -1 - i for fill colour i.
    """

    start: int
    step: int
    length: int
    begin: float
    span: float
    size: int
    window: npt.NDArray[np.int32]
