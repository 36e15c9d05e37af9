"""``python -m bench.upstream TREE``: torchvision's own tests under accel, beside the same tests without it.

Exit status: 0 as expected, 1 not, 2 wrong usage, or tests that cannot be run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from accel.cli import screen
from accel.cli.arguments import WrongUsage, at_least, command
from accel.cli.tables import Table, show
from bench.machine import write
from bench.upstream.expected import EXPECTED, Verdict, compare
from bench.upstream.run import Backend, Broken, Outcome, run

CLEAN, FOUND = 0, 1
BACKENDS = ("cpu", "cuda")
FILES = ("test_transforms*.py", "test_image.py", "test_tv_tensors.py", "test_functional_tensor.py")


@command("upstream")
def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    folder = args.tree / "test"
    files = sorted({file for pattern in args.files for file in folder.glob(pattern)})
    if not files:
        raise WrongUsage(f"no {' '.join(args.files)} in {folder}: not a source tree of torchvision's?")
    verdicts = _verdicts(files, args)
    _show(verdicts)
    if args.json:
        told = {f"{file}, {backend}": _data(verdict) for (file, backend), verdict in verdicts.items()}
        write(args.json, {"verdicts": told})
    return CLEAN if all(verdict.good for verdict in verdicts.values()) else FOUND


def _verdicts(files: Sequence[Path], args: argparse.Namespace) -> dict[tuple[str, str], Verdict]:
    """The verdicts, by file and backend."""
    plain = Backend("torchvision", {}, args.sample)
    few = min(args.sample or args.cuda_sample, args.cuda_sample)
    known = Backend("cpu", {}, args.sample), Backend("cuda", {"device": "cpu"}, few)

    def outcomes(file: Path, backend: Backend) -> dict[str, Outcome]:
        said = f"{file.name}, {backend.name}"
        with screen.Bar(said) as bar:
            try:
                return run(file, backend, args.timeout, lambda done, total: bar.say(f"{said}: {done} of {total}"))
            except Broken as error:
                raise Broken(f"{said}: {error}") from None

    verdicts = {}
    for file in files:
        before = outcomes(file, plain)
        for backend in known:
            if backend.name in args.backends:
                after = outcomes(file, backend)
                verdicts[file.name, backend.name] = compare(before, after, backend.sample, EXPECTED)
    return verdicts


def _show(verdicts: dict[tuple[str, str], Verdict]) -> None:
    columns = ("file", "backend", "tests", "passed", "skipped", "fail without", "expected failures", "other")
    rows, lines = [], []
    for (file, backend), verdict in verdicts.items():
        counts = verdict.counts
        passed = counts["passed"] + counts["xfailed"]
        found = (verdict.plain, verdict.expected.total(), len(verdict.unexpected))
        numbers = (counts.total(), passed, counts["skipped"], *found)
        name = file.removeprefix("test_").removesuffix(".py")
        rows.append((name, backend, *(f"{number:,}" if number else "" for number in numbers)))
        for test, outcome in verdict.unexpected:
            told = (f"\n{test}", f"{outcome.kind} under {backend}", *outcome.text.splitlines()[:12])
            lines.append("\n  ".join(told))
        for row in verdict.spent:
            where = f"{file} under {backend}"
            lines.append(f"\n{where}: none fails any more that bench/upstream/expected.py names: {row.tests}")
    show(Table("", columns, rows, text=2))
    counted = {row: sum(verdict.expected[row] for verdict in verdicts.values()) for row in EXPECTED}
    for line in (*(f"{count} expected: {row.why}" for row, count in counted.items() if count), *lines):
        screen.out.print(line, markup=False, soft_wrap=True)


def _data(verdict: Verdict) -> dict[str, Any]:
    return {
        "counts": dict(verdict.counts),
        "fail in torchvision": verdict.plain,
        "expected": {row.why: count for row, count in verdict.expected.items()},
        "unexpected": [[finding.test, *finding.outcome] for finding in verdict.unexpected],
        "spent": [row.tests for row in verdict.spent],
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.upstream",
        description="Run torchvision's own tests without accel, under cpu, and a sample of them under cuda on the "
        "host; compare what fails with the list in bench/upstream/expected.py.",
    )
    parser.add_argument("tree", type=Path, help="a source tree of the torchvision that is installed")
    parser.add_argument("--files", nargs="+", default=FILES, metavar="NAME", help="patterns of files in TREE/test")
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS, help="[all]")
    cases = "at most N cases of each test function"
    parser.add_argument("--sample", type=at_least(1), metavar="N", help=f"{cases} [all]")
    parser.add_argument("--cuda-sample", type=at_least(1), default=2, metavar="N", help=f"{cases} under cuda [2]")
    parser.add_argument("--timeout", type=float, default=600, metavar="S", help="seconds a test may take [%(default)s]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result")
    return parser


if __name__ == "__main__":
    sys.exit(main())
