"""Fields of the layout array, which ``layout`` fills: the part of each component that a region needs."""

from __future__ import annotations

# Places in a component's row of the layout array (int64[3, LAYOUT_SIZE]).  Blocks and samples count from the
# component's own top left corner.  KIND: how it is upsampled, one of the constants below; COLUMNS, ROWS: its true size
# in samples, to which neighbours are clamped; BLOCK_*: the needed blocks, half-open ranges; ORIGIN: the place of sample
# (0, 0) in the planes, which may be negative if the needed part begins later; LINE: the place of one row of upsampled
# samples; RING: the number of rows of samples that the plane holds: row y lies in row y % RING of it.
KIND, H_RATIO, V_RATIO, COLUMNS, ROWS, BLOCK_LEFT, BLOCK_RIGHT, BLOCK_TOP, BLOCK_BOTTOM, ORIGIN, STRIDE, LINE, RING = (
    range(13)
)
LAYOUT_SIZE = 13

PLAIN, H2V1, H1V2, H2V2, REPEAT = range(5)
