"""What a batch of files takes: kernels, in the order of their launches, and pieces of memory for every picture."""

from __future__ import annotations

KERNELS = (
    *("jpeg_count", "jpeg_offsets", "jpeg_unstuff", "jpeg_tables"),
    *("jpeg_synchronise", "jpeg_join", "jpeg_coefficients", "jpeg_dc", "jpeg_points", "jpeg_segments"),
    *("jpeg_transform", "jpeg_pixels"),
)
"""For files, in the order of their launches."""

LAUNCHES = (*KERNELS[:-1], "jpeg_unpack", KERNELS[-1])
"""For files, and for planes that are kept of some."""

PLANES = ("plane0", "plane1", "plane2")
PIECES = (
    *("stream", "tiles", "edges", "spans", "tables", "kept", "dc", "coefficients", "state", "points", "pixels"),
    *PLANES,
)
"""Kinds of working memory, in their order there; but for the planes, the names of a picture's fields as well."""
