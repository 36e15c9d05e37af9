"""``python -m bench.gpu``: test and measure on this GPU; write results/<GPU>.json, print a table last."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from accel.cli import screen
from accel.cli.arguments import at_least
from accel.cli.data import folder, open_folder
from accel.cli.tables import Table, show
from bench.gpu import checks, decode, kernels, path, training
from bench.gpu.setting import Setting, photos
from bench.machine import ROOT, provenance

PARTS: dict[str, Callable[[Setting], dict[str, Any]]] = {
    "checks": lambda setting: checks.measure(setting),
    "decode": decode.measure,
    "emit": kernels.emit,
    "augment": kernels.augment,
    "path": path.measure,
    "quality": decode.quality,
    "training": training.measure,
    "overlap": training.overlap,
}
"""In this order."""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 all went well, 1 a test or a measurement failed (the others are reported), 2 there is no GPU."""
    args = _parser().parse_args(argv)
    if args.device != "cpu" and not torch.cuda.is_available():
        screen.fail("bench.gpu", "there is no CUDA device (--device cpu tries the commands on the host)")
        return 2
    device = torch.empty(0, device=args.device).device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "host"
    out = args.out or ROOT / "bench" / "results" / f"{name.replace(' ', '-')}.json"
    trace = out.with_suffix(".trace.json.gz")
    with folder(args.data) as (root, data_name):
        files = open_folder(root).files
        setting = Setting(photos(files, args.batch), files, root, device, args.rounds, args.steps, trace)
        result = {**provenance(), "device": name, "data": {"name": data_name, "files": len(files)}}
        failed = False
        for part in args.only or PARTS:
            screen.note(part)
            try:
                result[part] = PARTS[part](setting)
            except Exception as error:  # what else can be measured is measured
                traceback.print_exc()
                result[part] = {"failed": f"{type(error).__name__}: {error}"}
                failed = True
    failed |= any(
        each["status"] not in (0, None) for each in result.get("checks", {}).values() if isinstance(each, dict)
    )
    screen.write_json(out, result)
    screen.note(f"written to {out}")
    rows = [row for part in PARTS for row in _lines(part, result.get(part, {}))]
    show(Table(f"accel on {name}", ("", "measured"), rows, text=2))
    return int(failed)


LINES = {
    "decode": ("decoder, {}", "{ms a batch:.2f} ms, {images/s:.0f} images/s"),
    "emit": ("kernels, {}", "{kernels GB/s:.0f} GB/s, {share of copy bandwidth:.0%} of a copy"),
    "augment": ("pipeline, {}", "{path ms:.1f} ms, {path, times plain:.2f} x plain, {launched} launches"),
    "path": ("path, {}", "{ms a batch:.1f} ms, {images/s:.0f} images/s"),
    "quality": ("exact=False, {}", "max {max}, mean {mean:.4f}"),
    "training": ("{}", "{images/s:.0f} images/s, waiting {share waiting for data:.1%}"),
}


def _lines(part: str, found: dict[str, Any]) -> list[tuple[str, str]]:
    if "failed" in found:
        return [(part, f"FAILED: {found['failed']}")]
    if part == "checks":
        words = {0: "green", None: "not run"}
        return [(name, words.get(each["status"], f"RED ({each['status']})")) for name, each in found.items()]
    if part == "overlap":
        share = found.get("share of them beside training")
        return [] if share is None else [("accel's kernels beside training", f"{share:.0%} of their time")]
    if part == "training":
        models = (model for model in training.MODELS if model in found)
        found = {f"{model}, {name}": each for model in models for name, each in found[model].items()}
    if part in ("decode", "path"):
        found = found.get("batches" if part == "decode" else "contestants", {})
    name, text = LINES[part]
    return [
        (name.format(each), text.format(**figures, launched=len(figures.get("launches", ()))))
        for each, figures in found.items()
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description="Test and measure accel on a GPU.")
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder of photos [made for the run]")
    parser.add_argument("--batch", type=at_least(1), default=512, metavar="N", help="[%(default)s]")
    parser.add_argument("--rounds", type=at_least(1), default=7, metavar="N", help="interleaved [%(default)s]")
    parser.add_argument("--steps", type=at_least(1), default=40, metavar="N", help="of training [%(default)s]")
    parser.add_argument("--only", action="append", choices=PARTS, help="run this part; may be repeated [all]")
    parser.add_argument("--device", default="cuda:0", help="[%(default)s]; cpu: try the commands on the host")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the result file [bench/results/<GPU>.json]")
    return parser


if __name__ == "__main__":
    sys.exit(main())
