"""``python -m bench [WORKLOAD...]``: check, measure, print tables and write a result file; ``report``: see there."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from accel.cli import screen
from accel.cli.arguments import WrongUsage, at_least, comma_separated, command
from accel.cli.data import folder, open_folder
from accel.cli.tables import show
from bench import report
from bench.contestants import CONTESTANTS
from bench.machine import ROOT, provenance
from bench.tables import tables
from bench.workload import Setting
from bench.workloads import WORKLOADS


@command("bench")
def main(argv: Sequence[str] | None = None) -> int:
    """Run workloads. Exit status: 0 measured, 1 a check is red (nothing is reported), 2 wrong usage."""
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["report"]:
        return report.main(argv[1:])
    args = _parser().parse_args(argv)
    workloads = [WORKLOADS[name] for name in _known("workload", args.workloads, WORKLOADS)]
    contestants = [CONTESTANTS[name] for name in _known("contestant", args.against, CONTESTANTS)]
    with folder(args.data) as (root, name), tempfile.TemporaryDirectory(prefix="accel-bench-") as scratch:
        data = open_folder(root)
        for text in data.notes:
            screen.note(text)
        setting = Setting(data.files, Path(scratch), args.rounds, args.images, contestants)
        result = {
            **provenance(),
            "command": "python -m bench " + " ".join([*args.workloads, *_given(args)]),
            "data": {"name": name, "images": len(data.files)},
            "rounds": args.rounds,
            "contestants": {each.key: each.why_not() or "runs" for each in setting.everybody},
        }
        parts: dict[str, Any] = {}
        for workload in workloads:
            begin = time.perf_counter()
            part = {"title": workload.title, **workload.measure(setting)}
            part["seconds taken"] = round(time.perf_counter() - begin, 1)
            parts[workload.name] = part
            for table in tables(part):
                show(table)
    result["workloads"] = parts
    out = args.out or ROOT / "bench" / "results" / "bench.json"
    screen.write_json(out, result)
    screen.note(f"written to {out}")
    return 0


def _given(args: argparse.Namespace) -> list[str]:
    """The arguments that matter for what was measured, as they would be given."""
    told = [f"--rounds {args.rounds}"]
    if args.against:
        told.append(f"--against {','.join(args.against)}")
    if args.images:
        told.append(f"--images {args.images}")
    return [*told, "--data DIR"] if args.data else told


def _known(what: str, names: Sequence[str], registry: dict[str, Any]) -> list[str]:
    """The names, all of the registry's for none; in the registry's order."""
    for name in names:
        if name not in registry:
            raise WrongUsage(f"no such {what}: {name}; there are {', '.join(registry)}")
    return [name for name in registry if name in names or not names]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure accel beside everything its users would pick instead. Tensors are checked first: where "
        "one that should be torchvision's is not, nothing is reported and the exit status is 1.",
        epilog=f"Workloads: {', '.join(WORKLOADS)}. Contestants: {', '.join(CONTESTANTS)}. "
        "Then python -m bench report makes bench/REPORT.md of the results.",
    )
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="what to measure [all]")
    against = "with whom; torchvision v1 and accel are always there [all]"
    parser.add_argument("--against", type=comma_separated, default=[], metavar="NAME,...", help=against)
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder of images [made for the run]")
    parser.add_argument("--images", type=at_least(2), metavar="N", help="at most N images an epoch")
    parser.add_argument("--rounds", type=at_least(1), default=5, metavar="N", help="interleaved [%(default)s]")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the result file [bench/results/bench.json]")
    return parser


if __name__ == "__main__":
    sys.exit(main())
