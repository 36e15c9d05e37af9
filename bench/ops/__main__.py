"""``python -m bench.ops``: the tables of docs/ops.md. See bench/README.md."""

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
from accel.cli.arguments import Red, command
from accel.cli.costs import ratio
from accel.cli.data import folder, open_folder
from accel.cli.tables import Table, markdown, show
from bench.machine import parser, write
from bench.ops import opencv
from bench.ops.measure import Contestant, cut, difference, floats, saved, times, why_not_cuda
from bench.ops.rows import FROM_FILES, OPS, POLICIES, Op

_CUDA_IMAGES = 2  # for the cuda backend's values, as its kernels are slow on the host
_OPS = (
    *("op", "torchvision, ms", "accel, ms", "times faster", "OpenCV, ms", "times faster than it"),
    *("from a file: torchvision, ms", "accel, ms", "times faster"),
)
_PIPELINES = ("photos to a batch", "torchvision, ms", "accel, ms", "times faster")


@command("ops")
def main(argv: Sequence[str] | None = None) -> int:
    options = parser("bench.ops", "Every op on Pillow images, one by one.", out="ops.json", images=8, rounds=5)
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
                _check(name, make, "cpu", images)
                if without["cuda"] is None:
                    _check(name, make, "cuda", images[:_CUDA_IMAGES])
                result["ops"][name] = _times(make(), by_opencv.get(name), images, files, args.rounds)
                bar.advance()
            for name, make in FROM_FILES.items():
                _check(name, make, "cpu", photos)
                result["pipelines"][name] = _pipeline(make(), photos, args.rounds)
                bar.advance()
    for each in tables(write(args.out, result)):
        show(each)
    return 0


def _check(name: str, make: Callable[[], Op], backend: str, images: Sequence[Any]) -> None:
    """Compare an op with torchvision's, as no speed is reported where one differs.

    Raises:
        Red: a value differs, or the host had to run an op of an accelerator.
    """
    before = accel.stats()["fallbacks"]
    found = difference(make, backend, images)
    if found["share"]:
        raise Red(f"{name} under {backend}: off by up to {found['levels']} levels, {found['share']:.4%} of values")
    if backend != "cpu" and (after := accel.stats()["fallbacks"]) != before:
        raise Red(f"{name} under {backend} fell back: {after}")


def _times(op: Op, by_opencv: Any, images: Sequence[Any], files: Sequence[str], rounds: int) -> dict[str, Any]:
    """An op's times for an image in memory, and from its file."""
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


def text(result: dict[str, Any]) -> str:
    """The result in Markdown, with its provenance."""
    processor, versions = result["machine"]["cpu"], result["versions"]
    measured = (
        f"Measured {result['date'][:10]} at commit {str(result['commit'])[:10]} on {processor}; torchvision "
        f"{versions['torchvision']}, Pillow {versions['Pillow']}; {result['images']} "
        f"photos, {result['rounds']} rounds in turns.\n"
    )
    return "\n".join([measured, *map(markdown, tables(result))]).rstrip("\n")


def tables(result: dict[str, Any]) -> list[Table]:
    rows, pipelines = [], []
    for name, row in result["ops"].items():
        here, from_file = ((_ms(row, f"torchvision{way}"), _ms(row, f"accel{way}")) for way in ("", ", file"))
        times = {key: f"{value:.1f}" for key, value in row["times faster"].items()}
        beside = _ms(row, "OpenCV"), times.get("OpenCV", "")
        rows.append((name, *here, times["torchvision"], *beside, *from_file, times["torchvision, file"]))
    for name, row in result["pipelines"].items():
        spent = _ms(row, "torchvision"), _ms(row, "cpu")
        pipelines.append((name, *spent, f"{row['times faster']:.1f}"))
    notes = [f"{name} did not run: {why}." for name, why in result["not run"].items()]
    return [Table("", _OPS, rows, notes), Table("", _PIPELINES, pipelines)]


def _ms(row: dict[str, Any], name: str) -> str:
    spent = row["median ms"].get(name)
    return "" if spent is None else f"{spent:.2f}"


if __name__ == "__main__":
    raise SystemExit(main())
