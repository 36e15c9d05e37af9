"""``python -m bench.ops``: the op table of the README. See bench/README.md."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

import accel
from accel.cli import screen
from accel.cli.arguments import command
from accel.cli.costs import ratio
from accel.cli.data import folder, open_folder
from accel.cli.tables import show
from bench.command import parser, write
from bench.machine import ROOT
from bench.ops import opencv, table
from bench.ops.measure import Contestant, cut, difference, floats, saved, times, why_not_cuda
from bench.ops.rows import FROM_FILES, OPS, POLICIES, Op
from bench.report import with_block

_CUDA_IMAGES = 2
"""For the cuda backend's values: on the host its kernels take their time."""


@command("ops")
def main(argv: Sequence[str] | None = None) -> int:
    options = parser("bench.ops", "Every op on Pillow images, one by one.", out="ops.json", images=8, rounds=5)
    options.add_argument("--docs", action="store_true", help="put the tables into docs/ops.md as well")
    args = options.parse_args(argv)
    torch.set_num_threads(1)
    with folder(args.data) as (root, _), tempfile.TemporaryDirectory(prefix="accel-bench-") as scratch:
        photos = open_folder(root).files[: args.images]
        images = [cut(path) for path in photos]
        files = saved(images, Path(scratch))
        without = {"cuda": why_not_cuda(), "OpenCV": None}
        try:
            by_opencv = opencv.ops()
        except ImportError:
            by_opencv, without["OpenCV"] = {}, "not installed: opencv-python-headless"
        ops: dict[str, Callable[[], Op]] = {name: lambda op=op: op for name, op in OPS.items()} | POLICIES
        result: dict[str, Any] = {
            "images": len(images),
            "rounds": args.rounds,
            "not run": {name: why for name, why in without.items() if why is not None},
            "ops": {},
            "pipelines": {},
        }
        with screen.Bar("ops", len(ops) + len(FROM_FILES)) as bar:
            for name, make in ops.items():
                found = {"cpu": difference(make, "cpu", images)}
                if without["cuda"] is None:
                    before = accel.stats()["fallbacks"]
                    found["cuda"] = difference(make, "cuda", images[:_CUDA_IMAGES])
                    found["cuda"]["by the host"] = accel.stats()["fallbacks"] != before
                result["ops"][name] = found | _times(make(), by_opencv.get(name), images, files, args.rounds)
                bar.advance()
            for name, make in FROM_FILES.items():
                found = {"cpu": difference(make, "cpu", photos)}
                result["pipelines"][name] = found | _pipeline(make(), photos, args.rounds)
                bar.advance()
    for each in table.tables(result := write(args.out, result)):
        show(each)
    if args.docs:
        page = ROOT / "docs" / "ops.md"
        page.write_text(with_block(page.read_text(), table.text(result), "ops"))
    return 0


def _times(op: Op, by_opencv: Any, images: Sequence[Any], files: Sequence[str], rounds: int) -> dict[str, Any]:
    """An op's times: of an image in memory, and from its file."""
    contestants = {
        f"{name}{what}": Contestant(backend, given, lambda given: np.asarray(floats(op, given)))
        for what, given in (("", images), (", file", files))
        for name, backend in (("torchvision", "torchvision"), ("accel", "cpu"))
    }
    if by_opencv is not None:
        arrays = [np.array(image) for image in images]
        contestants["OpenCV"] = Contestant(None, arrays, lambda pixels: opencv.floats(by_opencv(pixels)))
    spent = times(contestants, rounds)
    others = {name: each for name, each in spent.items() if not name.startswith("accel")}
    faster = {name: ratio(spent["accel, file" if "file" in name else "accel"], each) for name, each in others.items()}
    return {**_figures(spent), "times faster": faster}


def _pipeline(transform: Op, photos: Sequence[str], rounds: int) -> dict[str, Any]:
    def batch(files: Sequence[str]) -> Any:
        return np.asarray(torch.stack([floats(transform, file) for file in files]))

    spent = times({name: Contestant(name, [list(photos)], batch) for name in ("torchvision", "cpu")}, rounds)
    return {**_figures(spent, len(photos)), "times faster": ratio(spent["cpu"], spent["torchvision"])}


def _figures(spent: dict[str, list[float]], images: int = 1) -> dict[str, Any]:
    return {
        "seconds": {name: [round(seconds, 7) for seconds in each] for name, each in spent.items()},
        "median ms": {name: 1000 * median(each) / images for name, each in spent.items()},
    }


if __name__ == "__main__":
    raise SystemExit(main())
