"""torchvision's resize of uint8 tensors on the CPU: which op of the table it is here.

That depends on the machine: on what torch was compiled for, and on which of that the CPU can do.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from torchvision.transforms import InterpolationMode

from accel.ops import resample
from accel.ops.accept import whole
from accel.ops.resample import Aten
from accel.recipe import Step
from accel.system import counters
from accel.system.private_names import private

_geometry = private(
    "torchvision.transforms.v2.functional._geometry",
    "_check_interpolation",
    "_compute_resized_output_size",
    "_do_native_uint8_resize_on_cpu",
)

_RESAMPLE = {
    (InterpolationMode.BILINEAR, True): Aten.BILINEAR,
    (InterpolationMode.BICUBIC, True): Aten.BICUBIC,
    (InterpolationMode.LANCZOS, True): Aten.LANCZOS,
    (InterpolationMode.BILINEAR, False): Aten.BILINEAR_POINT,
    (InterpolationMode.BICUBIC, False): Aten.BICUBIC_POINT,
}


def steps(
    old: tuple[int, int], size: Any, interpolation: Any, max_size: int | None, antialias: bool | None
) -> tuple[Step, ...] | None:
    """Steps that resize pixels of the ``old`` (height, width) as torchvision does: one, or none where nothing is to do.

    None: what torchvision does is no op of the table. Raises what torchvision raises for such arguments.
    """
    op, code = _resampling(interpolation, bool(antialias))
    new = whole(*_geometry._compute_resized_output_size(old, size=size, max_size=max_size))
    if new == old:
        return ()
    if op is None or new is None or min(new) < 1:
        return None
    height, width = new
    if op == "resize" and (height * width == 1 or (width == 1 and not _vectors())):
        return None  # torch 2.15 refuses the one and, without vector instructions, gets the other wrong
    return ((op, (height, width, *code)),)


@cache
def _resampling(interpolation: Any, antialias: bool) -> tuple[str | None, tuple[int, ...]]:
    """The op, and its code there."""
    mode = _geometry._check_interpolation(interpolation)
    if mode == InterpolationMode.NEAREST:
        return "nearest", ()
    if mode == InterpolationMode.NEAREST_EXACT:
        return ("nearest_exact" if _picks_alike() else None), ()
    code = _RESAMPLE.get((mode, antialias))
    if code is None or not (_vectors() or _geometry._do_native_uint8_resize_on_cpu(mode)):
        return None, ()  # torchvision interpolates in float32
    return "resize", (int(code),)


def _vectors() -> bool:
    native: bool = _geometry._do_native_uint8_resize_on_cpu(InterpolationMode.BILINEAR)
    return native


def _picks_alike() -> bool:
    """Whether torch's nearest-exact picks what ``resample.nearest_exact`` does, tried where roundings differ.

    They do where torch is compiled for fused multiplication and addition, as it is for AVX2 and AVX512.
    """
    for length, size in ((2, 41), (2, 47), (4, 166), (10, 205), (4, 282), (14, 385)):
        for other in (1, 128):
            places = torch.arange(length, dtype=torch.uint8, device="cpu").view(1, 1, 1, length)
            shown = torch.nn.functional.interpolate(places, (other, size), mode="nearest-exact")[0, 0, 0]
            if not np.array_equal(shown.numpy(), resample.nearest_exact(length, size, other)):
                counters.fallback("nearest-exact of tensors is left to torch, which rounds otherwise on this machine")
                return False
    return True
