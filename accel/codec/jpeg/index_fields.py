"""The stream index: where things are in the scan of one file, as little-endian 16-bit words.

Before every ``spacing``-th MCU, counted row by row, lies a *point*: the bit that the MCU begins with, counted in the
file from its first byte on, and each component's last DC coefficient.  Points are known from the first one on, as far
as whole rows of MCUs have been walked by a decode that succeeded.

    words 0       MAGIC; 0: nothing is known
          1       spacing
          2       rows of MCUs that are known
          4-7     the digest of all of the file's bytes (digest.py)
          8-9     the bit behind the last MCU known, low word first
          12-15   a checksum of the words before it, and of the points known
          16-     the points: the bit (two words, low word first), and for each component a DC coefficient (int16)

At the beginning of a restart interval the bit is the one behind the marker, and the coefficients are 0.  A bit's byte
may be the 0xFF of a stuffed pair.  What lies beyond the points known means nothing.
"""

from __future__ import annotations

MAGIC = 0xACC1
KIND, SPACING, ROWS, _, DIGEST = range(5)
END = 8
CHECKSUM = 12
POINTS = 16
POINT = 2  # words of a point, besides one for each component

SHARE = 50  # an index takes at most one byte in so many of its file's,
AROUND = 64  # less what its keeper needs
SEGMENTS = 32  # points that a row of MCUs needs at most: with more of them, hardly less would be walked
MAX_BYTES = 1 << 29  # of a file, so that a bit's number has 32 bits
