"""The parameters of ``reading_kernels.read`` and the fields of its rows, for its callers."""

SIGNATURE = "int i8[2] u4[1] u1[1]w u8[1]w"
WANTED, NUMBERS = 1, 2
"""The positions of its parameters."""

DESCRIPTOR, OFFSET, COUNT, BEGIN, END, NUMBER = range(6)
"""Fields of a row: the descriptor of the segment's file, the entry's offset in it, its number of parts, the first part
to read, the one behind the last, and ``Entry.number``."""
ROW = 6
