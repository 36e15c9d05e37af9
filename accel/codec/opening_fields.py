"""What is in a row of int64 that says of one file how it was opened (``opening_kernels.read``)."""

STATE, READ = 0, 1
DEVICE, INODE, BYTES, WRITTEN, CHANGED = 2, 3, 4, 5, 6
"""As in ``memory.Key``."""
SCAN, COMPONENTS, HEIGHT, WIDTH = 7, 8, 9, 10
"""Of a plain JPEG file."""
FIELDS = 11

NONE, LARGE, OTHER, PLAIN = 0, 1, 2, 3
"""States: it could not be read; it is larger than the room for it; ``header.claim`` is to be asked; it is plain."""

GONE, NO_ROOM, LARGEST, NEEDED, END, ASKED, SAID = 0, 1, 2, 3, 4, 5, 6
"""What is said of files that are read behind one another: how many could not be read, for how many there was too little
room, the bytes of the largest and of all as they would lie, where the last one ends, and of how many somebody is to be
asked, for they are not plain or have too many pixels."""
