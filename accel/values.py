"""Value tables: what a sequence of value ops makes of each of the 256 uint8 levels, per channel.

The ops act on single values, so running torch itself on 0..255 once gives every result they can have, bit for
bit, whatever the ops; the backends only look up.
"""

from __future__ import annotations

from functools import lru_cache

import torch

from accel.ops import OPS
from accel.recipe import Step


@lru_cache(maxsize=256)
def table(channels: int, steps: tuple[Step, ...]) -> torch.Tensor:
    """The values of levels 0..255 after ``steps``: [channels, 256], contiguous, of the final dtype.

    Raises:
        What torchvision raises for such parameters (a zero std, a mean of the wrong length, ...).
    """
    levels = torch.arange(256, dtype=torch.uint8, device="cpu").expand(channels, 1, 256)
    for name, params in steps:
        apply = OPS[name].apply
        assert apply is not None, f"{name} is no value op"
        levels = apply(levels, *params)
    return levels.reshape(channels, 256).contiguous()
