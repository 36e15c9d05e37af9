"""The fields of the arrays that a thread's share of a batch works on (``shares``, ``share_kernels``)."""

POSITION, DATA, BYTES, HAS_KEY = range(4)
"""Fields of a shared image: its place in the batch, the address and bytes of its file, and whether it has a key."""
IMAGE = 4

CURRENT, LEFT, DONE, WANTED, ROOM, USED, DROPPED, KEPT, FULL, CROWDED = range(10)
"""Fields of a share's answer: the image to go on with (-1 for the next one); the numbers of images left to Python and
done; which working memory is too small, and the room needed; the numbers of indexes that were used, did not fit, and
were kept for the first time; whether there is no room for more; the number of indexes that had no slot."""
SAID = 10

ENDS, PLANES, INDEX, PASS = range(4)
"""The kinds of working memory that may be too small."""

LARGEST, REGION = range(2)
"""Fields of the list of a batch's files: the bytes of the largest file, and the most bytes of pixels that are in memory
for a region, decoded as a whole or in bands."""
LISTED = 2

CLOCK, SPENT, NOW, CALL = 0, 1, 2, 4
"""Words of a share's sink: the libc clock that it reads (-1: none); the nanoseconds spent in it for an image; a time
(seconds, nanoseconds); and, from CALL on, the words of a call of ``pass_image.take_rows``."""
