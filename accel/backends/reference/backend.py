"""The meaning of a plan: every image is computed by itself, stage by stage, by Pillow and torchvision.

Slow and obvious. Every other backend is tested against it, and a new one may begin as a copy of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

from accel.backend import HostBackend
from accel.backends.shared.index_maps import positions
from accel.backends.shared.pixels import Pixels, by_pillow, image_of
from accel.ops.index import Index
from accel.ops.resample import SUPPORT, Aten, box_of
from accel.planning.plan import Item, Plan
from accel.planning.stages import Effect, Levels, Pass
from accel.processes.switch import image_backend
from accel.runtime import read
from accel.system.memory import Allocate


class ReferenceBackend(HostBackend):
    """Exact by definition; never chosen by ``"auto"``."""

    def run(self, plan: Plan, allocate: Allocate) -> torch.Tensor:
        """Decode every source once, and make all the plan's images of it."""
        result = plan.empty(allocate)
        for wanted in plan.decodes:
            pixels = read.pixels(wanted, plan.shape[0], self.options, "pillow")  # of ``wanted.box`` alone
            with image_backend("torchvision"):
                for item in wanted.items:
                    result[item.position] = values_of(pixels, item)
        return result

    def describe(self, plan: Plan) -> list[str]:
        return ["decoder: pillow, of whole files", "runs: Pillow and torchvision, image by image and stage by stage"]


def values_of(pixels: Pixels, item: Item) -> torch.Tensor:
    """One image's values [channels, height, width], from the pixels [height, width, channels] of its source."""
    for stage in item.stages:
        pixels = after_pass(pixels, stage) if isinstance(stage, Pass) else after_effect(pixels, stage)
    levels = torch.from_numpy(pixels.astype(np.int64)).permute(2, 0, 1)
    values = torch.stack([table[channel] for table, channel in zip(item.table, levels, strict=True)])
    for top, left, height, width, erased in item.patches:
        values[:, top : top + height, left : left + width] = erased
    return values


def after_pass(pixels: Pixels, stage: Pass) -> Pixels:
    """Crop, flip and pad; resize; crop, flip and pad again; look up. Each of these may change nothing."""
    rows, columns = stage.rows, stage.columns
    pixels = shown(pixels, rows.view, columns.view, stage.fills)
    if stage.resample:
        box = box_of(rows.extent, columns.extent, pixels.shape[:2])
        pixels = resized(pixels, rows.size, columns.size, stage.resample, box)
    pixels = shown(pixels, rows.window, columns.window, stage.fills)
    return looked_up(pixels, stage.levels)


def after_effect(pixels: Pixels, effect: Effect) -> Pixels:
    """Run the Pillow or torchvision function that the op's row names, on a part of the pixels; look up."""
    top, left, height, width = effect.box
    pixels = by_pillow(pixels[top : top + height, left : left + width], effect.op, effect.params)
    return looked_up(pixels, effect.levels)


def shown(pixels: Pixels, rows: Index, columns: Index, fills: tuple[tuple[int, ...], ...]) -> Pixels:
    """Apply two index maps to pixels: each gives every output position an input position or, negative, a colour's code.

    If row and column have different codes, the smaller one, from the later padding, decides.
    """
    row, column = positions(rows, pixels.shape[0])[:, None], positions(columns, pixels.shape[1])[None, :]
    result = pixels[np.maximum(row, 0), np.maximum(column, 0)]
    codes = np.minimum(np.minimum(row, column), 0)
    for number, colour in enumerate(fills):
        result[codes == -1 - number] = colour
    return result


_MODES = {1: InterpolationMode.LANCZOS, 2: InterpolationMode.BILINEAR, 3: InterpolationMode.BICUBIC}


def resized(pixels: Pixels, height: int, width: int, code: int, box: tuple[float, ...]) -> Pixels:
    """Resize a box by Pillow or, for tensors, everything by torch (codes: ``accel.ops.resample``)."""
    if code in SUPPORT:
        picture = image_of(pixels).resize((width, height), code, box)
        return np.asarray(picture).reshape(height, width, -1)
    tensor = torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1)
    antialias = code < Aten.BILINEAR_POINT
    made: Any = F.resize(tensor, [height, width], _MODES[code & 7], antialias=antialias)
    return made.permute(1, 2, 0).numpy()  # type: ignore[no-any-return]


def looked_up(pixels: Pixels, levels: Levels | None) -> Pixels:
    """Replace each channel's levels by its table's; None changes nothing."""
    if levels is None:
        return pixels
    picture = image_of(pixels).point(levels.reshape(-1).tolist())
    return np.asarray(picture).reshape(pixels.shape)
