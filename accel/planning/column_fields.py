"""Fields of the arrays of ``columns.Columns``, and of the arguments of the compiled code that fills them."""

START, STEP, LENGTH, SIZE, WINDOW, WINDOW_STEP = range(6)
"""The numbers of an axis: its view of the decoded box (start, step, length); the size that this is resampled to, or its
own length; and the window on that (start, step), which shows the fill colour where it is outside."""
AXIS = 6

BEGIN, SHOWN = range(2)
"""Fields of ``Columns.parts``: the offset of an image's values in memory; its height, followed by its width."""

KIND, DRAWN, PARAMS = range(3)
"""Fields of a form: its step, the column that says which images have it (-1: all), and four parameters."""
CONSTANT = 1
"""Field of a parameter, after its column (-1: it has none): its constant value."""
FORM = PARAMS + 4 * 2

RESIZE, CROP, HFLIP, VFLIP, PAD = range(5)
"""Steps."""

RESIZED = 2
"""Field of what was done to an image: to its rows, to its columns (since a resize), and whether it was resized."""
WORK = 6
"""Rows of four numbers that the compiled code works in."""

COLOURED = 3
"""The components of a picture of mode "RGB", in the third column from the end of ``Sources.table``."""

NEVER = -2
"""In place of a column: no grey image is converted to RGB."""

COLUMNS_FIRST, BY_SHAPE, BY_LOSS = range(3)
"""Rules for the order in which the axes are resampled (``resample.rows_first``)."""

OTHERWISE = 1
"""The result that says that columns cannot express some image."""

CHANNELS, HEIGHT, WIDTH, ALIKE, LONGEST = range(5)
"""Results for all images: their channels, the largest height and width after the steps, whether all have this size, and
the largest number of an axis."""
FOUND = 5
