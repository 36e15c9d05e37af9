"""What is in the arrays that a thread's share of a batch of files works on (``shares``, ``share_kernels``)."""

POSITION, DATA, BYTES, HAS_KEY = range(4)
"""Of an image that the batch's threads share: its place in the batch, where its file is, how long that is."""
IMAGE = 4

CURRENT, LEFT, DONE, WANTED, ROOM, USED, DROPPED, KEPT, FULL, CROWDED = range(10)
"""What a share says: the image to go on with (-1: the next one), how many are left to Python, and are done, the working
memory that it needs more of and how much; how many indexes were used, did not fit, and are kept for the first time,
whether there is no room for more, and how many had no slot."""
SAID = 10

ENDS, PLANES, INDEX, PASS = range(4)
"""Working memory that a share may need more of."""

LARGEST, REGION = range(2)
"""What the list of a batch's files says: the bytes of the largest, and of the pixels of the largest region."""
LISTED = 2

CLOCK, SPENT, NOW, CALL = 0, 1, 2, 4
"""What a share's sink has of its own: libc's clock, or -1; nanoseconds spent in it for an image; room for a time; and
the words of a call of ``pass_image.take_rows``."""
