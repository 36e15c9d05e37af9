"""The stream index: where every few MCUs begin in the scan of one file, as little-endian 16-bit words.

Before every ``spacing``-th MCU, counted row by row, there is a *point*: the bit that the MCU begins with, counted from
the file's first byte, and each component's last DC coefficient.  Points are known from the first one on, up to the last
whole row of MCUs that a successful decode has walked.

    words 0       MAGIC; 0: no points are known
          1       spacing
          2       the number of known rows of MCUs
          4-7     the digest of all of the file's bytes (digest.py)
          8-9     the bit behind the last known MCU, low word first
          12-15   a checksum of the words before it, and of the known points
          16-     the points: the bit (two words, low word first), and for each component a DC coefficient (int16)

At the beginning of a restart interval the bit is the one behind the marker, and the coefficients are 0.  A bit's byte
may be the 0xFF of a stuffed pair.  Words beyond the known points have no meaning.
"""

from __future__ import annotations

MAGIC = 0xACC1
KIND, SPACING, ROWS, _, DIGEST = range(5)
END = 8
CHECKSUM = 12
POINTS = 16
POINT = 2  # words of a point, besides one for each component

SHARE = 50  # an index takes at most one of so many bytes of its file,
AROUND = 64  # less the bytes that storing it takes besides
SEGMENTS = 32  # the most points in a row of MCUs: with more, hardly fewer MCUs would be walked
MAX_BYTES = 1 << 29  # of a file, so that a bit's number fits 32 bits
