"""Regions of a batch's memory, of which places consist (``descriptors``), for Python and compiled code."""

from __future__ import annotations

from enum import IntEnum


class Region(IntEnum):
    """Regions of memory for places. NOWHERE: the place is null."""

    NOWHERE = 0
    UPLOAD = 1  # sent by the host: descriptors, tables, pixels
    SCRATCH = 2  # working memory of the kernels
    RESULT = 3
    FILES = 4  # encoded files, sent by the host
    DECODED = 5  # pixels from the JPEG decoder


ALIGNED = 64
"""What each file and each part of a program begins at a multiple of, in bytes."""

SHIFT = 56
"""The bits of an offset in a place; the region is above them."""

OFFSET = (1 << SHIFT) - 1
