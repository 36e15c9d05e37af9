"""Fields of the header array, which ``header`` fills from a file."""

from __future__ import annotations

# Places in the header array (int64[HEADER_SIZE]).
WIDTH, HEIGHT, COMPONENTS, COLOUR, RESTART, SCAN, H_MAX, V_MAX = range(8)
COMPONENT = 8  # COMPONENT + COMPONENT_FIELDS * c + one of the fields below
COMPONENT_FIELDS = 6
IDENTIFIER, H_SAMP, V_SAMP, QUANT, DC_TABLE, AC_TABLE = range(COMPONENT_FIELDS)
QUANT_AT = COMPONENT + 3 * COMPONENT_FIELDS  # byte offset of quantisation table 0..3's precision byte; 0: absent
HUFFMAN_AT = QUANT_AT + 4  # byte offset of the 16 counts of DC tables 0..3, AC tables 0..3; 0: absent
INTERVALS = HUFFMAN_AT + 8  # restart intervals
# Of the file's index (index_fields.py): its size, 0 if it has none; where its points are (points.py); and the bits
INDEX_BYTES = INTERVALS + 1
LINE, POINTS_IN_LINE, STEP, GROWTH = range(INDEX_BYTES + 1, INDEX_BYTES + 5)
POINT_BITS = GROWTH + 1  # of a packed point; of these PLACE_BITS for its place,
PLACE_BITS = POINT_BITS + 1
DC_BITS = PLACE_BITS + 1  # and DC_BITS + c for a component's DC coefficient
JFIF = DC_BITS + 3  # 1 if there is a JFIF marker
ADOBE = JFIF + 1  # the transform that an Adobe marker names; -1: there is none
HEADER_SIZE = ADOBE + 1

GREY, YCC, RGB = range(3)
MAX_PIXELS = 1 << 26  # above this the scratch planes are no longer cheap, and Pillow guards against bombs
MAX_BLOCKS_IN_MCU = 10  # T.81 B.2.3
