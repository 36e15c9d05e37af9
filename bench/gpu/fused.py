"""``python -m bench.gpu.fused``: a prediction for the fused pass (``pass3``) on a GPU, from instructions and bytes.

The kernel's PTX is run for the crops of the train pipeline, by the tests' interpreter (tests/ptx), which counts what
every warp runs; of the device's own code, as many instructions are taken to run as the PTX of the same line of the
source does. ``counts.py`` says what is assumed of the GPU, and ``python -m bench.gpu --only emit`` measures the same.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import torch

import accel
from accel.cli.arguments import at_least
from accel.cli.data import folder, open_folder
from bench.gpu import counts, setting
from bench.machine import ROOT

KERNEL, BATCH = "pass3", 512


class Predicted(NamedTuple):
    """Of a photo, on average.

    Attributes:
        ptx, code: million warp instructions, of PTX and of the device's own code.
        moved: bytes that must be read and written: the crop, and float32 values.
    """

    ptx: float
    code: float
    moved: float

    def seconds(self, issued: float) -> float:
        """For a batch, if this part of the instructions that could be issued is."""
        rate = counts.MULTIPROCESSORS * counts.SCHEDULERS * counts.HERTZ
        return self.code * 1e6 * BATCH / (rate * issued)

    @property
    def copied(self) -> float:
        """Seconds for a copy that moves as many bytes as a batch."""
        return self.moved * BATCH / counts.BANDWIDTH


def predicted(photos: Sequence[setting.Photo]) -> Predicted:
    """
    Raises:
        AssertionError: what the interpreter makes of a photo is not what torchvision does.
    """
    if (tests := str(ROOT / "tests")) not in sys.path:
        sys.path.append(tests)
    device, running, command = (import_module(f"ptx.{name}") for name in ("device", "running", "__main__"))
    interpreter = device.PtxDevice(together=64)
    before = command.assembled(device.program(KERNEL))
    for photo in photos:
        found = running.computed(interpreter, lambda photo=photo: setting.batch([photo]))
        with accel.image_backend("torchvision"):
            assert torch.equal(found, setting.batch([photo])), photo.name
    ran = command.assembled(device.program(KERNEL)) - before
    boxes = [photo.draw.box for photo in photos if photo.draw.box is not None]
    moved = sum(3 * height * width for _, _, height, width in boxes) / len(boxes) + 3 * setting.SIZE * setting.SIZE * 4
    return Predicted(interpreter.ran[KERNEL] / len(photos) / 1e6, ran / len(photos) / 1e6, moved)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.fused", description=__doc__)
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder of photos [made for the run]")
    parser.add_argument("--count", type=at_least(1), default=64, metavar="N", help="photos [%(default)s]")
    args = parser.parse_args(argv)
    with folder(args.data) as (root, _):
        found = predicted(setting.photos(open_folder(root).files, args.count))
    print(f"{found.code:.3f} million warp instructions ({found.ptx:.3f} of PTX) and {found.moved / 1e6:.2f} MB a photo")
    print(f"a batch of {BATCH}, copied: {1e3 * found.copied:.2f} ms")
    for share in (counts.ISSUED, 0.6, 0.8):
        seconds = found.seconds(share)
        print(f"{share:.0%} issued: {1e3 * seconds:.2f} ms, {min(found.copied / seconds, 1):.0%} of a copy's bandwidth")
    return 0


if __name__ == "__main__":
    sys.exit(main())
