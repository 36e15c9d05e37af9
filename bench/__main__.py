"""``python -m bench SUITE``: measure a suite's workloads, print tables and write a result file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from accel.cli import screen
from accel.cli.arguments import at_least
from accel.cli.data import DataError, folder, open_folder
from bench import report
from bench.machine import ROOT, provenance
from bench.workload import Red, Setting
from bench.workloads import SUITES


def main(argv: Sequence[str] | None = None) -> int:
    """Run a suite. Exit status: 0 measured, 1 a check is red (nothing is reported), 2 wrong usage."""
    args = _parser().parse_args(argv)
    workloads = [each for each in SUITES[args.suite] if not args.only or each.name in args.only]
    if not workloads:
        screen.fail("bench", f"no such workload; {args.suite} has {', '.join(w.name for w in SUITES[args.suite])}")
        return 2
    result = {"suite": args.suite, **provenance()}
    try:
        with folder(args.data) as (root, name):
            data = open_folder(root, limit=args.limit)
            for text in data.notes:
                screen.note(text)
            setting = Setting(root, args.limit, args.batch_size, args.rounds)
            result["data"] = {"name": name, "images": len(data.order)}
            result["settings"] = {"rounds": args.rounds, "batch size": args.batch_size}
            measured = [(workload, workload.measure(setting)) for workload in workloads]
    except DataError as error:
        screen.fail("bench", str(error))
        return 2
    except Red as error:
        screen.fail("bench", str(error))
        return 1
    result["workloads"] = [report.as_data(workload, rows) for workload, rows in measured]
    for workload, rows in measured:
        report.show(workload, rows)
    out = args.out or ROOT / "bench" / "results" / f"{args.suite}.json"
    screen.write_json(out, result)
    screen.note(f"written to {out}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure accel side by side with torchvision. Tensors are checked first: where one differs, "
        "nothing is reported and the exit status is 1.",
    )
    parser.add_argument("suite", choices=SUITES, help="which workloads to run")
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder of images [made for the run]")
    parser.add_argument("--limit", type=at_least(1), metavar="N", help="use N images of it [all]")
    parser.add_argument("--rounds", type=at_least(1), default=7, metavar="N", help="interleaved [%(default)s]")
    parser.add_argument("--batch-size", type=at_least(1), default=50, metavar="N", help="[%(default)s]")
    parser.add_argument("--only", action="append", metavar="WORKLOAD", help="run this one; may be repeated [all]")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the result file [bench/results/SUITE.json]")
    return parser


if __name__ == "__main__":
    sys.exit(main())
