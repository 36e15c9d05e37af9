"""``python -m bench.gpu``: test and measure on this GPU; README.md beside this explains the order."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from accel.cli import screen
from accel.cli.arguments import at_least
from accel.cli.data import folder
from accel.cli.tables import Table, show
from bench.gpu import plan, processes, variants
from bench.machine import RESULTS, ROOT, versions


def main(argv: Sequence[str] | None = None, age: float = 0) -> int:
    """Run steps. Exit status: 0 all went well, 1 a step failed (the others are reported), 2 there is no GPU.

    ``age``: seconds since the command began, which count.
    """
    args = _parser().parse_args(argv)
    steps = plan.chosen(args.only, args.match)
    if not (args.plan or args.only or args.match or args.variant):
        listed = [(each.part, each.step, f"{args.patience * each.seconds:.0f}") for each in steps]
        show(Table("the plan, most valuable first", ("part", "step", "usual seconds"), listed, text=2))
        return 0
    if args.device != "cpu" and not torch.cuda.is_available():
        screen.fail("bench.gpu", "there is no CUDA device (--device cpu tries the commands on the host)")
        return 2
    ends = time.monotonic() + 60 * args.minutes - age
    out, variant = args.out.resolve(), dict(args.variant)
    if args.device == "cpu" and out.is_relative_to(RESULTS):
        screen.fail("bench.gpu", "--device cpu needs --out: what the host's stand-in does is no result")
        return 2
    out.mkdir(parents=True, exist_ok=True)
    name = "".join([*(f".{each}-{number}" for each, number in variant.items()), ".host" * (args.device == "cpu")])
    red, ended = False, dict[plan.Planned, str]()
    with tempfile.TemporaryDirectory(prefix="accel-") as scratch, folder(args.data) as (data, _):
        processes.make_findable(Path(scratch) / "found")
        where = variants.made(variant, Path(scratch) / "checkout") if variant else ROOT
        options = {each: getattr(args, each) for each in ("batch", "rounds", "steps", "seconds")}
        identity = plan.identity(torch.device(args.device), {**options, "variant": variant})
        told = {"device": args.device, "data": str(data.resolve()), "options": options, "identity": identity}
        installed = versions()
        screen.say(f"commit {identity['commit']}, sources {identity['sources']}, on {identity['card']}")
        for part, some in plan.groups(steps):
            file = plan.place(out, part + name, identity)
            before = plan.done(file, installed)
            usual = {each.step: args.patience * each.seconds for each in some if each.step not in before}
            left = ends - time.monotonic()
            if args.patience * plan.PROCESS + min(usual.values(), default=0) < left and usual:
                limit = args.patience * max(30.0, 3 * max(each.seconds for each in some))
                told |= {"part": part, "steps": usual, "limit": limit}
                found = processes.run(file, told, min(left, limit * len(usual) + 120 * args.patience), where)["steps"]
                for step, text in lines(part, {step: found[step] for step in found if step not in before}):
                    screen.say(f"{step}: {text}")
                    red = red or text.startswith("FAILED")
                before = found
            ended |= {each: outcome(before[each.step]) for each in some if each.step in before}
    for how, number in sorted(Counter(ended.values()).items(), key=lambda each: ENDS.index(each[0])):
        named = "; ".join(f"{each.part}: {each.step}" for each in ended if ended[each] == how == "failed")
        screen.say(f"{number} {how}{named and f': {named}'}")
    if later := [each for each in steps if each not in ended]:
        wait = args.patience * sum(each.seconds for each in later)
        screen.say(f"{len(later)} steps are left, which usually take {wait:.0f} s: run the same command again")
    return int(red)


LINES = {
    "decode": "{ms a batch:.2f} ms, {images/s:.0f} images/s, kernels {kernels, ms:.2f} ms",
    "emit": "{kernels GB/s:.0f} GB/s, {share of copy bandwidth:.0%} of a copy",
    "augment": "{path ms:.1f} ms, {path, times plain:.2f} x plain",
    "path": "{ms a batch:.1f} ms, {images/s:.0f} images/s",
    "training": "{images/s:.0f} images/s, waiting {share waiting for data:.1%}",
    "sustained": "{images/s:.0f} images/s, CPU {main, CPU s a s:.2f} + {workers, CPU s a s:.2f}",
    "checks": "green",
    "latency": "p50 {p50, ms, 1:.2f} ms, of 8 {p50, ms, 8:.2f}, of 32 {p50, ms, 32:.2f}; p99 {p99, ms, 1:.2f}",
    "ranks": "{images/s:.0f} images/s",
    "profile": "in {report}",
}


ENDS = ("measured", "failed", "not installed", "left out")


def outcome(found: dict[str, Any]) -> str:
    """How a step ended: one of ``ENDS``."""
    return next((each for each in ENDS if each in found), "measured")


def lines(part: str, steps: dict[str, Any]) -> list[tuple[str, str]]:
    """A part's rows of the table."""
    rows = []
    for step, found in steps.items():
        if (how := outcome(found)) == "failed":
            text = "FAILED: " + found["failed"].split("\n")[0]  # a compiler's error has many lines
        elif how != "measured":
            text = f"{how}: {found[how]}"
        elif part in LINES and not step.startswith("by part"):
            text = LINES[part].format(**found)
        else:
            text = ", ".join(
                f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
                for name, value in found.items()
                if not isinstance(value, list)
            )
        rows.append((f"{part}: {step}", text))
    return rows


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description="Test and measure accel on a GPU.")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results/gpu", metavar="DIR", help="[%(default)s]")
    parser.add_argument("--plan", action="store_true", help="run all steps; without any choice they are listed")
    parser.add_argument("--only", action="append", choices=plan.PARTS, help="run this part; may be repeated")
    parser.add_argument("--match", default="", metavar="TEXT", help="only steps with this in their names")
    parser.add_argument("--minutes", type=float, default=1e9, metavar="N", help="begin what usually ends by then [all]")
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder of photos [made for the run]")
    parser.add_argument("--batch", type=at_least(1), default=512, metavar="N", help="[%(default)s]")
    parser.add_argument("--rounds", type=at_least(1), default=7, metavar="N", help="of what is timed [%(default)s]")
    parser.add_argument("--steps", type=at_least(1), default=40, metavar="N", help="of training [%(default)s]")
    parser.add_argument("--seconds", type=float, default=4.0, metavar="S", help="of what is sustained [%(default)s]")
    parser.add_argument(
        "--patience", type=float, default=1.0, metavar="F", help="times all limits and usual times [%(default)s]"
    )
    names = ", ".join(variants.VARIANTS)
    parser.add_argument("--variant", type=variants.parsed, action="append", default=[], metavar="NAME=N", help=names)
    parser.add_argument("--device", default="cuda:0", help="[%(default)s]; cpu: try the commands on the host")
    return parser


def run() -> None:
    """Run as a program: if it is ended (by `timeout`, Ctrl-C, a broken connection), so are its processes."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    sys.exit(main(age=_age()))


def _age() -> float:
    """Seconds since this process began; it has imported torch meanwhile."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    run()
