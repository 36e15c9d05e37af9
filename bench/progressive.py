"""What nvImageCodec would bring on the host: epochs of the cpu backend as it is, and with nvImageCodec as its decoder.

    python -m bench.progressive [PIPELINE...] [--data DIR] [--images N] [--rounds N] [--out FILE]

CPU time of one process and one thread, without a cache, of the same photos as baseline and as progressive files, in
turns with equal random numbers; every batch is compared. accel decodes baseline files itself and has Pillow decode
progressive ones, whole. nvImageCodec decodes regions of both, by libjpeg-turbo as Pillow does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import numpy as np
from PIL import Image
from torchvision.datasets import ImageFolder

from accel.backends.dali.operator_chain import wide_enough
from accel.cli import screen
from accel.cli.arguments import Red, command
from accel.cli.tables import Table, show
from accel.codec import decode, engines
from accel.codec.engines import Box, Data, Pixels
from accel.system.imports import LazyModule
from bench.contestants.arrays import NvImageCodec
from bench.epochs import alike, epoch, linked, photos
from bench.index import PIPELINES
from bench.machine import known, parser, write

_codec = LazyModule("nvidia.nvimgcodec")
_KINDS = {"baseline": {}, "progressive": {"progressive": True}}
_SAME = {name: PIPELINES[name] for name in ("train", "eval")}


def _decoder() -> Any:
    codec: Any = _codec
    options: Any = {"backends": [codec.Backend(codec.BackendKind.CPU_ONLY)], "options": ":fancy_upsampling=1"}
    return codec.Decoder(device_id=codec.NVIMGCODEC_DEVICE_CPU_ONLY, max_num_cpu_threads=1, **options)


def by_nvimgcodec(decoder: Any, data: Data, box: Box, channels: int, *_: Any) -> Pixels:
    """nvImageCodec's pixels, as the functions of ``accel.codec.engines`` give them, on the region alone."""
    codec: Any = _codec
    stream = codec.CodeStream(data if isinstance(data, bytes) else np.frombuffer(data, np.uint8))
    top, first, height, columns = wide_enough(box, stream.width)
    if (height, columns) != (stream.height, stream.width):
        stream = stream.get_sub_code_stream(region=codec.Region(top, first, top + height, first + columns))
    colour = codec.ColorSpec.GRAY if channels == 1 else codec.ColorSpec.SRGB
    image = decoder.decode(stream, params=codec.DecodeParams(apply_exif_orientation=False, color_spec=colour))
    left = box[1] - first
    return np.ascontiguousarray(np.asarray(image)[:, left : left + box[3]])


def rewritten(files: Sequence[str], folder: Path, **options: Any) -> Path:
    """Write the photos again with these options of Pillow's, their quantisation and sampling as they are."""
    folder.mkdir()
    made = []
    for number, file in enumerate(files):
        with Image.open(file) as image:
            made.append(str(folder / f"{number}.jpg"))
            image.save(made[-1], "JPEG", quality="keep", **options)
    return linked(made, folder / "linked")


def turn(dataset: Any, seed: int, decoder: Any) -> tuple[float, int]:
    """An epoch, see ``bench.epochs.epoch``; ``decoder``: nvImageCodec's, which decodes all; None: as accel is."""
    with ExitStack() as stack:
        if decoder is not None:
            stack.enter_context(mock.patch.object(engines, "pillow", partial(by_nvimgcodec, decoder)))
            stack.enter_context(mock.patch.object(decode, "agrees", return_value=False))
        return epoch(dataset, seed, None)


def measure(root: Path, transform: Any, rounds: int, decoder: Any) -> dict[str, Any]:
    """Epochs in turns: the medians, in milliseconds an image, and accel's speed in multiples of nvImageCodec's."""
    dataset, found = ImageFolder(root, transform), []
    for number in range(-1, rounds):  # the first is not counted
        turns = {
            name: partial(turn, dataset, number, own) for name, own in (("accel", None), ("nvImageCodec", decoder))
        }
        found.append(alike(root.parent.name, turns, turn=number))
    ratios = [each["nvImageCodec"] / each["accel"] for each in found[1:]]
    times = {name: median(each[name] for each in found[1:]) for name in found[0]}
    return {"medians": times, "speed of accel": median(ratios), "rounds": ratios}


@command("progressive")
def main() -> int:
    options = parser("bench.progressive", str(__doc__).partition("\n")[0], out="progressive.json", images=200, rounds=9)
    options.add_argument("pipelines", nargs="*", metavar="PIPELINE", help=f"of {', '.join(_SAME)} [all]")
    args = options.parse_args()
    if (why := NvImageCodec().why_not()) is not None:
        raise Red(why)
    chosen, decoder = known("pipeline", args.pipelines, _SAME), _decoder()
    result: dict[str, Any] = {}
    with photos(args.data, args.images) as given, screen.Bar("progressive", 2 * len(chosen)) as bar:
        for kind, saved in _KINDS.items():
            root = rewritten(given.files, given.made / kind, **saved)
            for name, transform in chosen.items():
                result[f"{name}, {kind}"] = measure(root, transform, args.rounds, decoder)
                bar.advance()
    rows = []
    for name, each in result.items():
        times = each["medians"]
        rows.append((name, f"{times['accel']:.3f}", f"{times['nvImageCodec']:.3f}", f"{each['speed of accel']:.2f}x"))
    show(Table("ms of CPU time an image", ("", "accel", "with nvImageCodec", "speed of accel"), rows))
    write(args.out, {"load": os.getloadavg(), "images": args.images, **result})
    return 0


if __name__ == "__main__":
    sys.exit(main())
