"""The columns of the table that ``drawing_kernels`` follows: a row for each part of a program."""

from __future__ import annotations

CODES = 7
KIND, COLUMNS, ROWS, WIDE, FIRST, SECOND, THIRD = range(CODES)
"""The part's kind, how many of an image's numbers it fills, the resulting height and width, and by kind:

- ``RESIZED``: the number of the table of area fractions, that of aspect ratios, whether a crop of the whole image is a
  step as well;
- ``CROP``: whether top and left are always drawn together (v1), or each only if it can vary;
- ``FLIP``: the number of the table of numbers between 0 and 1 (it keeps the size);
- ``ALIKE``: the height and width that it takes; -1: any, which it keeps. Its numbers are the same for all images.
"""

RESIZED, CROP, FLIP, ALIKE = range(4)

SHORT, OTHERWISE = -1, -2
"""Results: there are too few outputs; an image must be drawn in Python."""
