"""Fields of a row of int64 that describes an opened file (``opening_kernels.read``)."""

STATE, READ = 0, 1
DEVICE, INODE, BYTES, WRITTEN, CHANGED = 2, 3, 4, 5, 6
"""The parts of the file's ``memory.Key``."""
SCAN, COMPONENTS, HEIGHT, WIDTH = 7, 8, 9, 10
"""Set for a plain JPEG file."""
FIELDS = 11

NONE, LARGE, OTHER, PLAIN = 0, 1, 2, 3
"""States: the file could not be read; it does not fit its room; ``header.claim`` must be asked; it is plain."""

GONE, NO_ROOM, LARGEST, NEEDED, END, ASKED, SAID = 0, 1, 2, 3, 4, 5, 6
"""Numbers for several files that are read one after another: those that could not be read, those without enough room,
the bytes of the largest one, the bytes that all would take, the end of the last one, and those that need a closer look
because they are not plain or have too many pixels."""
