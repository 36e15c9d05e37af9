"""Fields of the arrays of ``columns.Columns``, and of the arguments of the compiled code that fills them."""

START, STEP, LENGTH, SIZE, WINDOW, WINDOW_STEP = range(6)
"""The numbers of an axis: its view of the decoded box (start, step, length); the size that this is resampled to, or its
own length; and the window on that (start, step), which shows the fill colour where it is outside."""

BEGIN, SHOWN = range(2)
"""Fields of ``Columns.parts``: the offset of an image's values in memory; its height, followed by its width."""

KIND, DRAWN, PARAMS = range(3)
"""Fields of a form: its step, the column that says which images have it (-1: all), and four parameters."""
CONSTANT = 1
"""Field of a parameter, after its column (-1: it has none): its constant value."""
FORM = PARAMS + 4 * 2

RESIZE, CROP, HFLIP, VFLIP, PAD = range(5)
"""Steps."""

OTHERWISE = 1
"""The result that says that columns cannot express some image."""

HEIGHT, WIDTH, ALIKE = range(3)
"""Results for all images: the largest height and width after the steps, and whether all images have this size."""
FOUND = 3
