"""Fields of the layout array: what a region needs of each component, filled by ``layout``."""

from __future__ import annotations

# Places in a component's row of the layout array (int64[3, LAYOUT_SIZE]).  Blocks and samples count from the
# component's own top left corner.
(
    KIND,  # how it is upsampled: one of the constants below
    H_RATIO,
    V_RATIO,
    COLUMNS,  # true size, in samples: neighbours are clamped to it
    ROWS,
    BLOCK_LEFT,  # needed blocks: half-open ranges
    BLOCK_RIGHT,
    BLOCK_TOP,
    BLOCK_BOTTOM,
    ORIGIN,  # place of sample (0, 0) in the planes, negative where the needed part starts further on
    STRIDE,
    LINE,  # place of one row of upsampled samples
) = range(12)
LAYOUT_SIZE = 12

PLAIN, H2V1, H1V2, H2V2, REPEAT = range(5)
