"""The effects' compiled functions, as they are called: arrays are C-contiguous, ``out`` has the result's shape.

The files that they are compiled from say what each does.
"""

from __future__ import annotations

from accel.native import units

_MEMORY = "backends/shared/numba_memory.py"

COLOUR = units.Unit("colour", "backends/cpu/effect_colour.py", _MEMORY, seconds=2.5, makes_arrays=True)
FILTER = units.Unit(
    "filter", "backends/cpu/effect_filter.py", "backends/cpu/simd.py", _MEMORY, seconds=1, makes_arrays=True
)
WARP = units.Unit("warp", "backends/cpu/effect_warp.py", _MEMORY, seconds=1.5, makes_arrays=True)


def _of(unit: units.Unit, name: str, signature: str) -> units.Function:
    return unit.function(f"backends.cpu.effect_{unit.name}", name, signature)


mean_luma = _of(COLOUR, "mean_luma", "u1[3]")
autocontrast_table = _of(COLOUR, "autocontrast_table", "u1[3] u1[2]w")
equalize_table = _of(COLOUR, "equalize_table", "u1[3] u1[2]w")
look_up = _of(COLOUR, "look_up", "u1[3] u1[2] u1[3]w")
saturate = _of(COLOUR, "saturate", "u1[3] f4 u1[3]w")
grey = _of(COLOUR, "grey", "u1[3] u1[3]w")
permute = _of(COLOUR, "permute", "u1[3] i8[1] u1[3]w")
shift_hue = _of(COLOUR, "shift_hue", "u1[3] i4 u1[3]w")

sharpen = _of(FILTER, "sharpen", "u1[3] f4 u1[3]w")
blur_down = _of(FILTER, "blur_down", "u1[3] int int int int u1[3]w u1[3]w")
blur_across = _of(FILTER, "blur_across", "u1[3] int int int int u1[3]w u1[2]w u1[3]w")

affine_nearest = _of(WARP, "affine_nearest", "u1[3] f8[1] u1[1] u1[3]w")
warp = _of(WARP, "warp", "u1[3] f8[1] int u1[1] u1[3]w")
transpose = _of(WARP, "transpose", "u1[3] u1[3]w")
interleave = _of(WARP, "interleave", "u1[3] u1[3]w")
