"""The parameters of a fused pass (``pass_image.run_pass``), for its callers."""

SIGNATURE = (
    "u1[3] int int int f8 f8 int i4[1] int int int f8 f8 int i4[1] int bool u1[2] any[2] int f4[2] any[3]w bool u1[1]w"
)
AXES, AXIS, ROWS_FIRST, OUT, SCRATCH = 1, 7, 16, 21, 23
"""The positions of the first axis, of an axis's number of parameters, and of other parameters."""
