"""Comparing the device's JPEG round trip of pixels with the installed Pillow's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from accel.backends.shared.pixels import by_pillow
from accel.codec.header import Raw
from accel.planning.plan import Plan, plan
from accel.recipes.options import STEPS_ASIDE, Options, Selection
from accel.recipes.recipe import Recipe, Source
from accel.system import counters

_TRIED = ((3, 75, 61, 45), (3, 20, 40, 70), (1, 50, 33, 30), (3, 90, 9, 3))
"""Channels, quality, height and width of the pictures tried."""


def agrees(run: Callable[[Plan], torch.Tensor]) -> bool:
    """Whether a device's pixels equal Pillow's, on a few small pictures; waits for the device."""
    for channels, quality, height, width in _TRIED:
        waves = 128 + 100 * np.sin(np.add.outer(np.arange(height) / 5, np.arange(width) / 3))
        noise = np.random.default_rng(0).normal(0, 30, (height, width, channels))
        pixels = np.clip(waves[..., None] + noise, 0, 255).astype(np.uint8)
        raw = Raw(width, height, "RGB" if channels == 3 else "L")
        source = Source(pixels.reshape(-1).data, raw, "pixels", Selection(STEPS_ASIDE, Options()))
        found = run(plan([Recipe(source, (("jpeg", (quality,)), ("pil_to_tensor", ())))])).cpu()
        if not np.array_equal(found[0].permute(1, 2, 0), by_pillow(pixels, "jpeg", (quality,))):
            counters.fallback("the installed Pillow encodes JPEG in a way that accel does not know; Pillow encodes")
            return False
    return True
