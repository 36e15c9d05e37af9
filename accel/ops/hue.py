"""v2's ``adjust_hue`` of a tensor: torchvision's own takes some thirty passes over floats, compiled code one."""

from __future__ import annotations

from functools import cache

import torch
from torchvision.transforms.v2 import functional as F2

from accel.system import counters
from accel.system.native import units

UNIT = units.Unit("hue", "ops/hue_kernel.py", seconds=1, makes_arrays=True)
_shift_hue = UNIT.function("ops.hue_kernel", "shift_hue", "u1[1] int int int f4 u1[1]w")


def adjust_hue(values: torch.Tensor, factor: float) -> torch.Tensor:
    """``adjust_hue`` of torchvision.transforms.v2.functional, equal to it; compiled for uint8 [3, height, width]."""
    simple = values.dtype == torch.uint8 and values.ndim == 3 and values.shape[0] == 3 and values.is_cpu
    if not simple or not values.numel() or not _agrees():
        return F2.adjust_hue(values, factor)  # type: ignore[no-any-return]
    return _shifted(values, factor)


def _shifted(values: torch.Tensor, factor: float) -> torch.Tensor:
    pixels = values.permute(1, 2, 0)
    interleaved = pixels.is_contiguous()
    memory = (pixels if interleaved else values.contiguous()).reshape(-1).numpy()
    out = torch.empty(values.shape, dtype=torch.uint8, device="cpu")
    count = len(memory) // 3
    step, plane = (3, 1) if interleaved else (1, count)
    _shift_hue(memory, step, plane, count, factor, out.view(-1).numpy())
    return out


@cache
def _agrees() -> bool:
    """Whether the installed torchvision and torch compute the same, for colours of all kinds and both directions."""
    generator = torch.Generator().manual_seed(0)
    levels = torch.randint(0, 256, (3, 64, 67), dtype=torch.uint8, generator=generator, device="cpu")
    levels[:, :16] //= 64
    levels[1:, 16:20] = levels[0, 16:20]
    if all(_shifted(levels, by).equal(F2.adjust_hue(levels, by)) for by in (-0.5, -0.043, 0.0, 0.0217, 0.31, 0.5)):
        return True
    counters.fallback("the installed torch turns the hue of tensors in a way that accel does not know; torch does it")
    return False
