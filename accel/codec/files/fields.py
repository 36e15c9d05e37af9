"""Fields of a row of int64 that describes an opened file (``kernels.read``)."""

STATE, READ = 0, 1
DEVICE, INODE, BYTES, WRITTEN, CHANGED = 2, 3, 4, 5, 6
"""The parts of the file's ``memory.Key``; times that cannot be trusted are -1."""
SCAN, COMPONENTS, HEIGHT, WIDTH = 7, 8, 9, 10
"""Set for a plain JPEG file."""
FIELDS = 11

NONE, LARGE, OTHER, PLAIN = 0, 1, 2, 3
"""States: the file could not be read; it does not fit its memory; ``header.claim`` must be asked; it is plain."""

MISSING, NO_ROOM, LARGEST, NEEDED, UNUSUAL, TOTALS = 0, 1, 2, 3, 4, 5
"""Numbers for several files that are read one behind another: those that could not be read, those that did not fit, the
bytes of the largest one, the bytes that all need, and those that need a closer look because they are not plain or have
too many pixels."""

ALIGNED = 64
"""The alignment of files in memory, in bytes."""

OPEN, STATX, PREAD, CLOSE, ACCESS, FLAGS, CALLS = 0, 1, 2, 3, 4, 5, 6
"""What compiled code calls: addresses of libc's functions, and the flags to open with."""
