"""The call block of a thread's share of a batch (``shares``, ``share_kernels``): int64 [words].

A word is a number, or the address of the object of a C-contiguous array, which ``shares.Block`` keeps alive.
"""

READER = "int i8[1]w"
"""The parameters of a region reader: an image's number and the block. It writes the image's region to PIXELS, or says
where it is (AT), or hands it to the pass in bands, and returns a state."""

DONE, OTHERWISE, TOO_SMALL = range(3)
"""States of an image: done, left to Python, or to be tried again with more working memory."""

ENDS, PLANES, INDEX, PASS = range(4)
"""The kinds of working memory that may be too small."""

# Fields of the block.
POSITIONS, BOXES, AXES, ROWS_FIRST, PARTS, TARGET, PIXELS, WINDOWS, TIMES, LEFT = range(10)
"""Arrays: the places of the share's images in the batch; the boxes of their regions, their axes, the order of these and
the parts of the target, as in ``Columns``; the target; memory for a region; int32 [2 * n], for the windows of both
axes; the times of ``compiled_stage``; and, to be filled, the places of images that are left to Python."""
PASS_CALL, TAKE_ROWS, SINK = range(10, 13)
"""Words of calls of ``pass_image.run_pass``, ``take_rows`` and ``share_kernels.take_band``."""
COUNT, IMAGES, CHANNELS, ITEM, PLANAR, CLOCK = range(13, 19)
"""The numbers of images of the share and of the batch; channels; bytes of an item of the target; whether channels come
first there; the libc clock that is read (-1: none)."""
CURRENT, IS_READ, PART, MEMORY, ROOM, COUNT_LEFT, COUNT_DONE, SPENT, AT, NOW = range(19, 29)
"""Variables: the image to go on with (-1 for the next one), and whether its region is read; the part of the pass that
is to be run on that; which working memory is too small, and the items needed; the numbers of images that are left to
Python and done; the nanoseconds spent in the pass while a region is read; the address of the region; a time (seconds,
nanoseconds)."""

# Fields of a reader of files; one of pictures has FILES and CONTENT.
KNOWN, FILES, CONTENT, REGIONS, PREPARE, DECODE, HEADER, STORE, LEVELS, PLACES, OWN, OF_INDEX = range(30, 42)
"""``Files.known``; the offset and bytes of each file in an array; rows of the fields below;
words of the decoder's calls; the header array; the store of indexes (``store_kernels``), this thread's segment of it,
and memory for an index."""
USED, DROPPED, KEPT, FULL, CROWDED = range(42, 47)
"""Variables: the numbers of indexes that were used, did not fit, and were kept for the first time; whether there is no
room for more; the number of indexes that had no slot."""

# Fields of a reader of a cache's entries.
READ, ROWS, NUMBERS, BEGINS = range(30, 34)
"""Words of a call of ``reading_kernels.read``, and ``reading.Together``."""
DESCRIPTIONS, NEEDED, UNPACK, SPAN = range(34, 38)
"""For planes, also their descriptions, calls of ``planes_kernels.needed`` and ``unpack``, the former's span."""

WORDS = 47

BYTES, IN_BANDS = range(2)
"""Fields of a region: the most bytes of its pixels that are in memory, and whether it is decoded in bands."""
REGION = 2
