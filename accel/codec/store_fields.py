"""What is where in a store's memory and in its users' (``store``, ``store_kernels``)."""

PAGE, WINDOW, SEGMENT = 4096, 8, 1 << 14
"""Bytes, slots of a key in a table, and bytes."""

HASH, SIZE, HEAD = 5, 5, 6
"""Words: of a key that its hash follows; of an entry, where its size and checksum are, and how many come before its
content."""

TOKEN, AT, END, OWNER = range(4)
"""Words of what a thread knows of the segment that it fills: how it is marked as this thread's, where its next entry
lies and where it ends (bytes), and the word that is marked."""

OWNERS, SEGMENTS, DATA = range(3)
"""Of the layout of a store: the first word that says whose a segment is, how many there are, the first word of all."""
