"""What is where in a store's memory and in its users' (``store``, ``store_kernels``), in words of eight bytes."""

from __future__ import annotations

PAGE, WINDOW, SEGMENT = 512, 8, 1 << 11
"""Words of a page; slots of a key in a table; words of a segment."""

KEY, SIZE, HEAD = 5, 5, 6
"""Of an entry: the words of its key, which it begins with, where its content's size is, and where its content."""

MOST = 1 << 19
"""Words of an entry that is found together with others: one is not as large, whatever stands there."""

AT, END = range(2)
"""Of what a thread knows of the segment that it fills: where its next entry lies, and where the segment ends."""

SEGMENTS, DATA = range(2)
"""Of the layout of a store: how many segments there are, the first word of all."""

FULL, CROWDED, REPLACED, ADDED = range(4)
"""What becomes of an entry: no room, or no slot of its key, is left; it took an older one's place; it is the first."""
