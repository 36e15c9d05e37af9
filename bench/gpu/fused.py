"""A prediction for the fused pass (``pass3``) on a GPU, from instructions and bytes: a part of ``predict.py``.

The kernel's PTX is run for the crops of the train pipeline by an interpreter (rig/ptx), which counts the instructions
of every warp; an instruction of the device's own code is assumed to run as often as the PTX of the same source line.
``python -m bench.gpu --only emit`` measures the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import mean
from typing import NamedTuple

import numpy as np
import torch

from accel.backends.cuda.compile import unit_of
from bench.gpu import gpus, sass, setting
from rig.batches import by_kernels, by_torchvision
from rig.ptx.device import PtxDevice, installed, program
from rig.ptx.machine import Program
from rig.ptx.parse import Line

KERNEL = "pass3"
BLOCKS = 4 * 7  # of a photo: tiles of 64 x 32


class Predicted(NamedTuple):
    """Mean figures for a photo.

    Attributes:
        ptx: warp instructions of PTX.
        code: warp instructions of the device's own code, by kind.
        moved: bytes that must be read and written: the crop, and float32 values.
    """

    ptx: float
    code: gpus.Floats
    moved: float

    def seconds(self, gpu: gpus.Gpu, photos: float) -> gpus.Range:
        return gpus.seconds(gpu, photos * self.code, KERNEL, round(photos * BLOCKS), photos * self.moved)


def predicted(photos: Sequence[setting.Photo]) -> Predicted:
    """Predict the figures for some photos.

    Raises:
        AssertionError: the interpreter's result for a photo differs from torchvision's.
    """
    interpreter = PtxDevice(at_once=64)
    before = assembled(program(KERNEL))
    for photo in photos:
        batch = partial(setting.batch, [photo])
        with installed(interpreter):
            found = by_kernels(batch, decode="host")
        assert torch.equal(found, by_torchvision(batch)), photo.name
    ran = assembled(program(KERNEL)) - before
    boxes = [photo.draw.box for photo in photos if photo.draw.box is not None]
    moved = sum(3 * height * width for _, _, height, width in boxes) / len(boxes) + 3 * setting.SIZE * setting.SIZE * 4
    return Predicted(interpreter.ran[KERNEL] / len(photos), ran / len(photos), moved)


def assembled(made: Program) -> gpus.Floats:
    """The instructions of the device's own code that ran, by kind, if each ran as often as its line's PTX.

    Lines are distinguished by where they were inlined; a line without PTX counts as the one into which it was inlined.
    """
    exactly: dict[tuple[Line, ...], list[int]] = {}
    within: dict[tuple[Line, ...], list[int]] = {}
    for instruction, ran in zip(made.kernel.code, made.ran.tolist(), strict=True):
        exactly.setdefault(instruction.chain, []).append(ran)
        for start in range(len(instruction.chain)):
            within.setdefault(instruction.chain[start:], []).append(ran)
    total = np.zeros(len(gpus.KINDS))
    for chain, kinds in sass.kernels(unit_of(made.name))[made.name].chains.items():
        while chain not in within:
            chain = chain[1:]
        total += kinds * mean(exactly.get(chain) or within[chain])
    return total
