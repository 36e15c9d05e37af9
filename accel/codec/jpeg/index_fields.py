"""The stream index: where every few MCUs begin in the scan of one file, as little-endian 16-bit words.

Before every few MCUs (points.py says which) there is a *point*: the bit that the MCU begins with, counted from the
file's first byte, and each component's last DC coefficient.  Points are known from the first one on, up to the last
whole row of MCUs that a successful decode has walked.

    words 0       MAGIC; 0: no points are known
          1       the number of points in a line of MCUs
          2       the number of known rows of MCUs
          4-7     the digest of all of the file's bytes (digest.py)
          8-11    the bit behind the last known MCU, low word first
          12-15   a checksum of the words before it, and of the known points
          16-     the points, in groups of GROUP (fewer in the last one)

A group begins with a whole point: the bit (two words, low word first), and for each component a DC coefficient (int16).
Then each of the others takes header[POINT_BITS] bits, from the lowest bit of a word on: by how many bits it is behind
the point before it (header[PLACE_BITS] bits), and by how much the DC coefficients are larger (header[DC_BITS + c] bits,
half of their range added).  If such a number has not enough bits, the point is *left out*: all of its bits are ones,
and the next one refers to the one before.  A group ends with its last point's word.

At the beginning of a restart interval the bit is the one behind the marker, and the coefficients are 0.  A bit's byte
may be the 0xFF of a stuffed pair.  Words beyond the known points have no meaning.

In working memory a point is POINT numbers, int32: the bit, and three DC coefficients.  The bit of a point that is left
out is LEFT_OUT.
"""

from __future__ import annotations

MAGIC = 0xACC3
KIND, IN_LINE, ROWS, _, DIGEST = range(5)
END = 8
CHECKSUM = 12
POINTS = 16
GROUP = 16
SLACK = 4  # words behind the points, which are read and written by eight bytes

POINT = 4
LEFT_OUT = -1

SHARE = 50  # an index takes at most one of so many bytes of its file,
AROUND = 64  # less the bytes that storing it takes besides
MOST_IN_LINE = 64  # points in a line of MCUs: with more, hardly fewer MCUs would be walked
MOST_PASSED = MOST_IN_LINE + GROUP  # points that a walk over a part of a row passes
MAX_BYTES = 1 << 28  # of a file, so that a bit's number fits 31 bits


def most_points(size: int) -> int:
    """A number of points that the index of a file of so many bytes does not exceed: one takes at least 16 bits."""
    return size // (2 * SHARE) + 1
