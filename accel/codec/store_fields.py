"""The layout of a store's memory and of its users' (``store``, ``store_kernels``), in words of eight bytes."""

from __future__ import annotations

PAGE, WINDOW, SEGMENT = 512, 8, 1 << 11
"""Words of a page; slots for a key in a table; words of a segment."""

KEY, SIZE, HEAD = 5, 5, 6
"""An entry: the number of words of its key, which come first; the places of its content's size and of its content."""

MOST = 1 << 19
"""The most words of an entry that is read together with others; a larger size there is damage."""

AT, END = range(2)
"""The segment that a thread fills: where its next entry begins, and where the segment ends."""

SEGMENTS, DATA = range(2)
"""The layout of a store: the number of its segments, and the first word of these."""

FULL, CROWDED, REPLACED, ADDED = range(4)
"""Results of writing an entry: no room is left; no slot for its key is left; it replaced an older one; it is new."""
