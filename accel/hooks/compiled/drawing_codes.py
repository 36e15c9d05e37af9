"""What a row of the table says that ``drawing_kernels`` follows: one row for a part of a program, these columns."""

from __future__ import annotations

CODES = 7
KIND, COLUMNS, ROWS, WIDE, FIRST, SECOND, THIRD = range(CODES)
"""Its kind, how many numbers of an image it fills, the (height, width) that it leaves, and by kind:

- ``RESIZED``: the table of parts of an area, that of ratios, whether a crop of all is a step;
- ``CROP``: whether both places are drawn, or none;
- ``FLIP``: nothing (it leaves the size as it is);
- ``ALIKE``: the height and width that it takes, or -1: any, which it leaves as it is; its numbers are those that all
  have in common.
"""

RESIZED, CROP, FLIP, ALIKE = range(4)

SHORT, OTHERWISE = -1, -2
"""Results: more has been drawn than there is; an image is to be drawn in the usual way."""
