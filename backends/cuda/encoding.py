"""JPEG encoding and decoding of pixels on the device, compared with the installed Pillow's."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch

from accel.backends.cuda.device import Device
from accel.backends.cuda.execute import Execution
from accel.backends.cuda.lowering import schedule_of
from accel.backends.cuda.pinned_pool import PinnedPool
from accel.backends.shared.pixels import by_pillow
from accel.planning import values
from accel.planning.plan import Decode, Item, Plan
from accel.planning.stages import chain
from accel.recipe import Source
from accel.system import counters

_TRIED = ((3, 75, 61, 45), (3, 20, 40, 70), (1, 50, 33, 30), (3, 90, 9, 3))
"""Channels, quality, height and width."""


class Encoder:
    """Pillow's JPEG round trip on one device."""

    def __init__(self, device: Device, pool: PinnedPool) -> None:
        self._device, self._pool = device, pool
        self._agreed: bool | None = None

    def agrees(self) -> bool:
        """Whether its pixels equal Pillow's: tried once, on a few small pictures, which are waited for."""
        if self._agreed is None:
            self._agreed = all(self._agrees(*each) for each in _TRIED)
            if not self._agreed:
                counters.fallback("the installed Pillow encodes JPEG in a way that accel does not know; Pillow encodes")
        return self._agreed

    def _agrees(self, channels: int, quality: int, height: int, width: int) -> bool:
        waves = 128 + 100 * np.sin(np.add.outer(np.arange(height) / 5, np.arange(width) / 3))
        noise = np.random.default_rng(0).normal(0, 30, (height, width, channels))
        pixels = np.clip(waves[..., None] + noise, 0, 255).astype(np.uint8)
        box, stages, _ = chain((height, width), channels, (("jpeg", (quality,)),))
        item = Item(0, stages, values.table(channels, (("pil_to_tensor", ()),)))
        decodes = (Decode(cast(Source, None), channels, box, (item,)),)
        plan = Plan(decodes, (1, channels, height, width), torch.uint8, interleaved=True)
        with self._device.enter():
            result = torch.empty(height, width, channels, dtype=torch.uint8, device=self._device.torch_device)
            execution = Execution(schedule_of(plan, [None]), self._device, self._pool)
            np.copyto(execution.pixels(0, pixels.size), pixels.reshape(-1))
            for fill in execution.sent():
                fill()
            execution.upload(result)
            execution.launch()
            found = result.cpu().numpy()
        return np.array_equal(found, by_pillow(pixels, "jpeg", (quality,)))
