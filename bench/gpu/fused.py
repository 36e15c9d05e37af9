"""``python -m bench.gpu.fused``: a prediction for the fused pass (``pass3``) on a GPU, from instructions and bytes.

The kernel's PTX is run for the crops of the train pipeline, by an interpreter (rig/ptx), which counts what
every warp runs; of the device's own code, as many instructions are taken to run as the PTX of the same line of the
source does. ``gpus.py`` says what is assumed of the GPU, and ``python -m bench.gpu --only emit`` measures the same.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import numpy as np
import torch

from accel.backends.cuda.compile import unit_of
from accel.cli.arguments import at_least
from accel.cli.data import folder, open_folder
from bench.gpu import gpus, sass, setting
from rig.batches import by_kernels, by_torchvision
from rig.ptx.device import PtxDevice, installed, program
from rig.ptx.machine import Program
from rig.ptx.parse import Line

KERNEL, BATCH = "pass3", 512
BLOCKS = 4 * 7  # of a photo: tiles of 64 x 32


class Predicted(NamedTuple):
    """Figures of a photo, on average.

    Attributes:
        ptx: warp instructions, of PTX.
        code: of the device's own code, by kind.
        moved: bytes that must be read and written: the crop, and float32 values.
    """

    ptx: float
    code: gpus.Floats
    moved: float

    def seconds(self, gpu: gpus.Gpu, photos: float) -> gpus.Range:
        return gpus.seconds(gpu, photos * self.code, KERNEL, round(photos * BLOCKS), photos * self.moved)


def predicted(photos: Sequence[setting.Photo]) -> Predicted:
    """
    Raises:
        AssertionError: what the interpreter makes of a photo is not what torchvision does.
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
    """How many instructions of the device's own code ran, by kind, if each ran as often as its line's PTX did.

    Lines are told apart by where they were inlined; one that has no PTX counts as the line in which it was inlined.
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


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.fused", description=__doc__)
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder of photos [made for the run]")
    parser.add_argument("--count", type=at_least(1), default=64, metavar="N", help="photos [%(default)s]")
    parser.add_argument("--lines", type=at_least(0), default=0, metavar="N", help="show N lines, those that run most")
    args = parser.parse_args(argv)
    with folder(args.data) as (root, _):
        found = predicted(setting.photos(open_folder(root).files, args.count))
    number, shares = found.code.sum(), gpus.pipes(found.code) / found.code.sum()
    print(f"{number / 1e6:.3f} million warp instructions ({found.ptx / 1e6:.3f} of PTX), {found.moved / 1e6:.2f} MB a photo")
    print(", ".join(f"{pipe} {share:.0%}" for pipe, share in zip(gpus.PIPES, shares, strict=True)))
    for name, gpu in gpus.GPUS.items():
        low, high = 1e3 * found.seconds(gpu, BATCH)
        copied = 1e3 * found.moved * BATCH / gpu.bandwidth[0]
        print(f"{name}, {BATCH} photos: {low:.2f} to {high:.2f} ms by {gpus.bound(found.code)}; copied {copied:.2f} ms")
    lines = program(KERNEL).by_line()
    for (file, line), ran in lines.most_common(args.lines):
        print(f"{file}:{line:<5} {ran / lines.total():6.1%} {ran / args.count / 1e6:.4f} million a photo (PTX)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
