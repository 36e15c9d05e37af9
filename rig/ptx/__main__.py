"""``python -m ptx <photos>``: how many PTX instructions the warps of ``emit3`` run for crops of photos.

The photos and their crops are those of ``python -m bench.gpu.fused --data <photos> --count <count>``, which predicts
from them how long the device takes. The results are compared with torchvision's.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import mean

import torch

import accel
from accel.backends.cuda.compile import UNITS
from accel.cli.data import open_folder
from bench.gpu import sass, setting

from .device import PtxDevice, program
from .machine import Program
from .parse import Line
from .running import computed


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ptx", description=__doc__)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--count", type=int, default=16)
    parser.add_argument("--lines", type=int, default=0, help="show so many source lines, those that run most")
    parser.add_argument("--kernel", default="emit3")
    chosen = parser.parse_args()
    device = PtxDevice(together=64)
    photos = setting.photos(open_folder(chosen.photos).files, chosen.count)
    for photo in photos:
        before = device.ran[chosen.kernel]
        found = computed(device, lambda photo=photo: setting.batch([photo]))  # type: ignore[misc]
        with accel.image_backend("torchvision"):
            assert torch.equal(found, setting.batch([photo])), photo.name
        ran = device.ran[chosen.kernel] - before
        print(f"{photo.name[:30]:30} crop {photo.draw.box}: {ran / 1e6:.4f} million warp instructions")
    total, count = device.ran[chosen.kernel], len(photos)
    print(f"{chosen.kernel}: {total / count / 1e6:.4f} million warp instructions a photo (PTX), {count} photos")
    device_code = assembled(program(chosen.kernel))
    print(f"{chosen.kernel}: {device_code / count / 1e6:.4f} million of device code, if its lines ran as often")
    for (file, line), ran in program(chosen.kernel).by_line().most_common(chosen.lines):
        print(f"{file}:{line:<5} {ran / total:6.1%} {ran / count / 1e6:.4f}")


def assembled(made: Program) -> float:
    """How many instructions of the device's own code (sm_90) ran, if each of them ran as often as its line's PTX did.

    Lines are told apart by where they were inlined; one that has no PTX counts as the line in which it was inlined.
    """
    exactly: dict[tuple[Line, ...], list[int]] = {}
    within: dict[tuple[Line, ...], list[int]] = {}
    for instruction, ran in zip(made.kernel.code, made.ran.tolist(), strict=True):
        exactly.setdefault(instruction.chain, []).append(ran)
        for start in range(len(instruction.chain)):
            within.setdefault(instruction.chain[start:], []).append(ran)
    unit = next(unit for unit, names in UNITS.items() if made.name in names)
    total = 0.0
    for chain, count in sass.kernels(unit)[made.name].chains.items():
        while chain not in within:
            chain = chain[1:]
        total += count * mean(exactly.get(chain) or within[chain])
    return total


if __name__ == "__main__":
    main()
