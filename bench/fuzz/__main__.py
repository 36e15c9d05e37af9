"""``python -m bench.fuzz``: mutated image files under accel, beside plain Pillow and torchvision.

Exit status: 0 nothing found, 1 something was, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from accel.cli import screen
from accel.cli.arguments import WrongUsage, at_least, command
from accel.cli.tables import Table, show
from bench import guard
from bench.fuzz import messages
from bench.fuzz.findings import ALWAYS, COLUMNS, Findings
from bench.fuzz.recipes import Corpus
from bench.fuzz.run import FILES, Kind, Limits, Runner
from bench.machine import write

MESSAGES = Kind(messages.recipe, messages.make, messages.check_message)


@command("fuzz")
def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    args = _parser().parse_args(argv)
    if args.minutes is not None and not args.minutes > 0:
        raise WrongUsage(f"--minutes: {args.minutes:g} is not above 0")
    minutes = args.minutes or (float("inf") if args.files else 1)
    if args.guard and not guard.present():
        if why := guard.unavailable():
            raise WrongUsage(why)
        command = [sys.executable, "-m", "bench.fuzz", *argv]
        return subprocess.run(command, env=guard.environment(), check=False).returncode
    for folder in args.corpus:
        if not folder.is_dir():
            raise WrongUsage(f"no such folder: {folder}")
    keep = args.keep or Path(tempfile.mkdtemp(prefix="accel-fuzz-"))
    corpus = Corpus(args.corpus)
    runner = Runner(args.seed, corpus, Limits(args.timeout), MESSAGES if args.messages else FILES)
    found = Findings(keep)
    begin = time.monotonic()
    number, last = args.first, args.first + (args.files or sys.maxsize)
    with screen.Bar("fuzzing") as bar:
        while number < last and time.monotonic() - begin < 60 * minutes:
            chunk = range(number, min(number + args.chunk, last))
            for result in runner.run([runner.kind.recipe(each, runner.seed, corpus) for each in chunk]):
                found.add(result)
                bar.say(f"{found.total['files']:,} files, {found.bad} with findings of {len(found.causes)} causes")
            number = chunk.stop
    seconds = time.monotonic() - begin
    found.reduce(runner)
    if not found.causes and not args.keep:
        keep.rmdir()
    _show(found, seconds, len(corpus))
    if args.json:
        told = {"seed": args.seed, "first": args.first, "corpus": len(corpus), "seconds": round(seconds)}
        write(args.json, {**told, **found.as_data()})
    return int(found.bad > 0)


def _show(found: Findings, seconds: float, corpus: int) -> None:
    title = f"{found.total['files']:,} files, {corpus:,} in the corpus, {seconds:.0f} s"
    names = ("files", *(name for name in COLUMNS if found.total[name] or name in ALWAYS))
    counted = [*sorted(found.counts.items()), ("all", found.total)]
    rows = [(kind, *(str(counts[name] or "") for name in names)) for kind, counts in counted]
    show(Table(title, ("mutation", *names), rows))
    for data in found.causes.values():
        mutations = ", ".join(data["mutations"]) or "not mutated"
        told = f"{data['outcome']}: {data['answers']} answers, the first for file {data['number']} ({mutations})"
        lines = (told, f"  {data['kept']}", f"  {data['where']}", f"  {data['what']}\n")
        screen.out.print("\n".join(lines), markup=False, soft_wrap=True)
    if found.more:
        screen.out.print(f"and {found.more} findings of other causes")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.fuzz",
        description="Compare what accel makes of mutated image files with what plain Pillow and torchvision "
        "make of them: pixels, regions, refusals. Seed, corpus and a file's number decide how it is made.",
    )
    parser.add_argument("--minutes", type=float, metavar="N", help="how long [1, unless --files is given]")
    parser.add_argument("--files", type=at_least(1), metavar="N", help="how many files")
    parser.add_argument("--messages", action="store_true", help="messages of accel.wire in place of image files")
    parser.add_argument("--corpus", type=Path, nargs="+", default=[], metavar="DIR", help="files to mutate [made]")
    parser.add_argument("--seed", default="0", help="[%(default)s]")
    parser.add_argument("--first", type=at_least(0), default=0, metavar="N", help="number of the first file [0]")
    parser.add_argument("--chunk", type=at_least(1), default=100, metavar="N", help="files a process [%(default)s]")
    parser.add_argument("--timeout", type=float, default=60, metavar="S", help="seconds a file may take [%(default)s]")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where files with findings go [a new folder]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result")
    parser.add_argument("--guard", action="store_true", help="with an allocator that has guard pages (bench.guard)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
