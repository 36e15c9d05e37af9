"""``python -m bench [WORKLOAD...]``: check, measure, print tables and write a result file.

``python -m bench public``, ``report`` and ``figures`` are in the modules of these names.
"""

from __future__ import annotations

import argparse
import atexit
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from accel.cli import screen
from accel.cli.arguments import command
from accel.cli.data import folder, open_folder
from accel.cli.tables import show
from bench import figures, public, report
from bench.contestants import CONTESTANTS
from bench.machine import comma_separated, known, parser, write
from bench.tables import tables
from bench.workload import Setting
from bench.workloads import WORKLOADS


@command("bench")
def main(argv: Sequence[str] | None = None) -> int:
    """Run workloads. Exit status: 0 measured, 1 a check is red (nothing is reported), 2 wrong usage."""
    argv = sys.argv[1:] if argv is None else argv
    others = {"public": public.main, "report": report.main, "figures": figures.main}
    if argv and argv[0] in others:
        return others[argv[0]](argv[1:])
    args = _parser().parse_args(argv)
    workloads = known("workload", args.workloads, WORKLOADS)
    contestants = list(known("contestant", args.against, CONTESTANTS).values())
    told = {"--rounds": args.rounds, "--against": ",".join(args.against), "--images": args.images}
    told["--data"] = args.data and "DIR"
    parts: dict[str, Any] = {}
    with folder(args.data) as (root, name), tempfile.TemporaryDirectory(prefix="accel-bench-") as scratch:
        data = open_folder(root)
        for text in data.notes:
            screen.note(text)
        setting = Setting(data.files, Path(scratch), args.rounds, args.images, contestants)
        for key, workload in workloads.items():
            begin = time.perf_counter()
            part = {"title": workload.title, **workload.measure(setting)}
            parts[key] = {**part, "seconds taken": round(time.perf_counter() - begin, 1)}
            for table in tables(part):
                show(table)
    result = {
        "command": " ".join(
            ["python -m bench", *args.workloads, *(f"{each} {told[each]}" for each in told if told[each])]
        ),
        "data": {"name": name, "images": len(data.files)},
        "rounds": args.rounds,
        "contestants": {each.key: each.why_not() or "runs" for each in setting.everybody},
        "workloads": parts,
    }
    write(args.out, result)
    return 0


def _parser() -> argparse.ArgumentParser:
    options = parser(
        "bench",
        "Measure accel beside everything its users would pick instead. Tensors are checked first: where one that "
        "should be torchvision's is not, nothing is reported and the exit status is 1.",
        out="bench.json",
        rounds=5,
        least=(2, 1),
    )
    options.epilog = f"Workloads: {', '.join(WORKLOADS)}. Contestants: {', '.join(CONTESTANTS)}. "
    options.epilog += "Then python -m bench report makes bench/REPORT.md of the results, "
    options.epilog += "and python -m bench figures the figures of README.md and docs/."
    options.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="what to measure [all]")
    against = "with whom; torchvision v1 and accel are always there [all]"
    options.add_argument("--against", type=comma_separated, default=[], metavar="NAME,...", help=against)
    return options


if __name__ == "__main__":
    status = main()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(status)  # else FFCV never ends: numba, unloaded, waits for its TBB
