"""What is in the rows of ``columns.Columns``."""

START, STEP, LENGTH, SIZE, WINDOW, WINDOW_STEP = range(6)
"""The numbers of an axis: its view, onto the decoded box; what that is resampled to, or its own length again; and the
window on that, which is affine: where it is outside, it shows the fill colour."""

BEGIN, SHOWN = range(2)
"""Of a row of ``columns.Columns.parts``: the first of an image's values in memory; its height, and
behind that its width."""
