"""Compiled functions of effects, as they are called: arrays are C-contiguous, ``out`` has the result's shape.

The files that they are compiled from say what each does; ``effects`` adds those that are an effect by themselves.
"""

from __future__ import annotations

from accel.native import units

_MEMORY = "backends/shared/numba_memory.py"

COLOUR = units.Unit("colour", "backends/cpu/effect_colour.py", _MEMORY, seconds=2.5, makes_arrays=True)
FILTER = units.Unit("filter", "backends/cpu/effect_filter.py", _MEMORY, seconds=0.5, makes_arrays=True)
WARP = units.Unit("warp", "backends/cpu/effect_warp.py", _MEMORY, seconds=1.5, makes_arrays=True)


def function(unit: units.Unit, name: str, signature: str) -> units.Function:
    return unit.function(f"backends.cpu.effect_{unit.name}", name, signature)


mean_luma = function(COLOUR, "mean_luma", "u1[3]")
autocontrast_table = function(COLOUR, "autocontrast_table", "u1[3] u1[2]w")
equalize_table = function(COLOUR, "equalize_table", "u1[3] u1[2]w")
look_up = function(COLOUR, "look_up", "u1[3] u1[2] u1[3]w")

affine_nearest = function(WARP, "affine_nearest", "u1[3] f8[1] u1[1] u1[3]w")
warp = function(WARP, "warp", "u1[3] f8[1] int u1[1] u1[3]w")
interleave = function(WARP, "interleave", "u1[3] u1[3]w")
