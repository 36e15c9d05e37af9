"""The kernels for a batch of files, in the order of their launches, and the pieces of memory for every picture."""

from __future__ import annotations

LAUNCHES = (
    *("jpeg_count", "jpeg_offsets", "jpeg_unstuff", "jpeg_tables"),
    *("jpeg_synchronise", "jpeg_join", "jpeg_coefficients", "jpeg_dc", "jpeg_points", "jpeg_segments"),
    *("jpeg_transform", "jpeg_pixels"),
)
"""The kernels, in the order of their launches."""

PLANES = ("plane0", "plane1", "plane2")
PIECES = (
    *("stream", "tiles", "edges", "spans", "tables", "kept", "dc", "coefficients", "state", "points", "pixels"),
    *PLANES,
)
"""Kinds of working memory, in their order there; except the planes, these are also names of a picture's fields."""

FEW = 16
"""The most pictures of a batch whose streams are decoded in short pieces, by more threads."""
