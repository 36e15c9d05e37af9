"""What is in the rows of ``columns.Columns``, and in what the compiled code is told that makes them."""

START, STEP, LENGTH, SIZE, WINDOW, WINDOW_STEP = range(6)
"""The numbers of an axis: its view, onto the decoded box; what that is resampled to, or its own length again; and the
window on that, which is affine: where it is outside, it shows the fill colour."""
AXIS = 6

BEGIN, SHOWN = range(2)
"""Of ``Columns.parts``: the first of an image's values in memory; its height, and behind that its width."""

KIND, DRAWN, PARAMS = range(3)
"""Of a form: its step, the column that says which images have it (-1: all), and four parameters."""
CONSTANT = 1
"""Of a parameter, behind its column (-1: it has none): its value."""
FORM = PARAMS + 4 * 2

RESIZE, CROP, HFLIP, VFLIP, PAD = range(5)
"""Steps."""

OTHERWISE = 1
"""The result that says that columns cannot tell what becomes of some image."""

HEIGHT, WIDTH, ALIKE = range(3)
"""What is found out of all images: the largest height and width that one has then, and whether all have these."""
FOUND = 3
