"""The parameters of ``reading_kernels.read``, for who calls it, and what is in a row of what is wanted."""

SIGNATURE = "int i8[2] u4[1] u1[1]w u8[1]w"
WANTED, NUMBERS = 1, 2
"""Parameters of it."""

DESCRIPTOR, OFFSET, COUNT, BEGIN, END = range(5)
"""The descriptor of the segment's file, where the entry begins in it, how many parts it has, the first one to read, and
the one behind the last."""
ROW = 5
