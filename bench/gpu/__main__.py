"""``python -m bench.gpu``: test and measure on this GPU; README.md beside this explains the order."""

from __future__ import annotations

import argparse
import re
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from accel.cli import screen
from accel.cli.arguments import at_least
from accel.cli.data import folder
from accel.cli.tables import Table, show
from bench.gpu import processes, variants
from bench.machine import ROOT


class Part(NamedTuple):
    """A part: its function, and the seconds after which a step of it and all of it are stopped."""

    function: str
    step: int
    all: int


PARTS = {
    "start": Part("bench.gpu.start:measure", 120, 300),
    "sustained": Part("bench.gpu.sustained:measure", 75, 540),
    "decode": Part("bench.gpu.decode:measure", 60, 240),
    "checks": Part("bench.gpu.checks:measure", 240, 590),
    "path": Part("bench.gpu.path:measure", 60, 120),
    "emit": Part("bench.gpu.kernels:emit", 30, 60),
    "augment": Part("bench.gpu.kernels:augment", 45, 150),
    "sink": Part("bench.gpu.sinking:measure", 75, 180),
    "overlap": Part("bench.gpu.training:overlap", 90, 90),
    "training": Part("bench.gpu.training:measure", 60, 420),
    "quality": Part("bench.gpu.decode:quality", 60, 120),
}
"""Most valuable first."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts. Exit status: 0 all went well, 1 a part failed (the others are reported), 2 there is no GPU."""
    args = _parser().parse_args(argv)
    if args.device != "cpu" and not torch.cuda.is_available():
        screen.fail("bench.gpu", "there is no CUDA device (--device cpu tries the commands on the host)")
        return 2
    ends = time.monotonic() + 60 * args.minutes
    out, chosen = args.out.resolve(), dict(args.variant)
    out.mkdir(parents=True, exist_ok=True)
    name = "".join(f".{each}-{number}" for each, number in chosen.items())
    name += args.match and "." + re.sub(r"\W+", "-", args.match)
    rows: list[tuple[str, str]] = []
    with tempfile.TemporaryDirectory(prefix="accel-") as scratch, folder(args.data) as (data, _):
        processes.make_findable(Path(scratch) / "found")
        where = variants.made(chosen, Path(scratch) / "checkout") if chosen else ROOT
        told = {each: getattr(args, each) for each in ("device", "batch", "rounds", "steps", "seconds", "match")}
        told |= {"data": str(data.resolve()), "variant": chosen}
        for part in [each for each in PARTS if each in (args.only or PARTS)]:
            limit, left = args.patience * PARTS[part].all, ends - time.monotonic()
            if limit > left:
                rows.append((part, f"left out: it may take {limit:.0f} s, of which {max(left, 0):.0f} are left"))
                continue
            screen.note(f"{part}, at most {limit:.0f} s")
            told |= {
                "part": part,
                "function": PARTS[part].function,
                "limit": args.patience * PARTS[part].step,
            }
            found = lines(part, processes.run(out / f"{part}{name}.json", told, limit, where)["steps"])
            for row in found or [(part, "FAILED: it has no such step")]:
                screen.note(": ".join(row))
                rows.append(row)
    show(Table("accel on " + ("the host" if args.device == "cpu" else args.device), ("", "measured"), rows, text=2))
    return int(any(text.startswith("FAILED") for _, text in rows))


LINES = {
    "decode": "{ms a batch:.2f} ms, {images/s:.0f} images/s, kernels {kernels, ms:.2f} ms",
    "emit": "{kernels GB/s:.0f} GB/s, {share of copy bandwidth:.0%} of a copy",
    "augment": "{path ms:.1f} ms, {path, times plain:.2f} x plain",
    "path": "{ms a batch:.1f} ms, {images/s:.0f} images/s",
    "quality": "max {max}, mean {mean:.4f}",
    "training": "{images/s:.0f} images/s, waiting {share waiting for data:.1%}",
    "sustained": "{images/s:.0f} images/s, CPU {main, CPU s a s:.2f} + {workers, CPU s a s:.2f}",
    "checks": "green",
}


def lines(part: str, steps: dict[str, Any]) -> list[tuple[str, str]]:
    """A part's rows of the table."""
    rows = []
    for step, found in steps.items():
        if "failed" in found:
            text = "FAILED: " + found["failed"].split("\n")[0]  # a compiler's error has many lines
        elif "not installed" in found:
            text = f"not installed: {found['not installed']}"
        elif part in LINES and not step.startswith("by part"):
            text = LINES[part].format(**found)
        else:
            text = ", ".join(
                f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
                for name, value in found.items()
            )
        rows.append((f"{part}: {step}", text))
    return rows


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description="Test and measure accel on a GPU.")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results/gpu", metavar="DIR", help="[%(default)s]")
    parser.add_argument("--only", action="append", choices=PARTS, help="run this part; may be repeated [all]")
    parser.add_argument("--match", default="", metavar="TEXT", help="only steps with this in their names")
    parser.add_argument("--minutes", type=float, default=1e9, metavar="N", help="run what surely ends by then [all]")
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder of photos [made for the run]")
    parser.add_argument("--batch", type=at_least(1), default=512, metavar="N", help="[%(default)s]")
    parser.add_argument("--rounds", type=at_least(1), default=7, metavar="N", help="of what is timed [%(default)s]")
    parser.add_argument("--steps", type=at_least(1), default=40, metavar="N", help="of training [%(default)s]")
    parser.add_argument("--seconds", type=float, default=20.0, metavar="S", help="of what is sustained [%(default)s]")
    parser.add_argument("--patience", type=float, default=1.0, metavar="F", help="times all limits [%(default)s]")
    names = ", ".join(variants.VARIANTS)
    parser.add_argument("--variant", type=variants.parsed, action="append", default=[], metavar="NAME=N", help=names)
    parser.add_argument("--device", default="cuda:0", help="[%(default)s]; cpu: try the commands on the host")
    return parser


def run() -> None:
    """Run as a program: if it is ended (by `timeout`, Ctrl-C, a broken connection), so are its processes."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    sys.exit(main())


if __name__ == "__main__":
    run()
