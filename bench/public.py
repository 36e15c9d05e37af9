"""``python -m bench public [WORKLOAD...]``: every contestant in an environment of its own, in today's versions.

pip installs a contestant into a virtual environment in which this interpreter's packages can be imported as well:
torch, torchvision, Pillow and accel are the same for all. There it runs each workload in a process of its own, with
torchvision and accel in turns (``python -m bench WORKLOAD --against KEY``), so it may raise, crash or hang, and other
load on the machine affects all three alike. What cannot be installed or run is listed with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import site
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from accel.cli import machine, screen
from accel.cli.arguments import Red, WrongUsage, at_least, command
from accel.cli.data import folder, open_folder
from accel.cli.tables import Table, show
from bench import child, report
from bench.contestants import CONTESTANTS
from bench.contestants.contestant import Contestant
from bench.machine import ROOT, comma_separated, known, parser, write
from bench.pipelines import PIPELINES
from bench.tables import tables
from bench.workload import OURS, REFERENCE

_FIRST = CONTESTANTS["torchvision-v2"]  # nothing is installed for it: its run has the rows of torchvision and accel
_TRAINING = ("--backend", "cpu", "--images", "200", "--rounds", "3", "--batch-size", "20")
_USUAL = ("train", "eval", "decode", "loader", "cifar", "png", "training")
_INSTALLING, _STARTING, _MEASURING = 1200.0, 90.0, 60.0  # the most seconds: of an installation, a process, a workload
_LATE = "it had not ended after"


# -- environments -------------------------------------------------------------------------------------------


class Environment(NamedTuple):
    """An interpreter that can import a contestant, and the versions of its distributions; or why there is none."""

    python: str
    versions: dict[str, str]
    why_not: str | None = None


def environment(root: Path, distributions: Sequence[str], anew: bool = False) -> Environment:
    """The environment below ``root`` that has distributions, installed in their newest versions if it is not there or
    was not finished, or in any case."""
    if not distributions:
        return Environment(sys.executable, {})
    place = root / distributions[0]
    python, finished = str(place / "bin" / "python"), place / "finished.json"
    common = _common()
    wanted = {"distributions": [*distributions], "base": sys.prefix, "Python": sys.version, **common}
    with suppress(OSError, ValueError):
        found = json.loads(finished.read_text())
        if found["wanted"] == wanted and not anew:
            return Environment(python, found["versions"])
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    constraints, log = root / f"{place.name}.constraints.txt", root / f"{place.name}.log"
    constraints.write_text("".join(f"{each}=={version}\n" for each, version in common.items()))
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--upgrade", "--no-input"]
    pip += ["--disable-pip-version-check", "--constraint", str(constraints), *distributions]
    for words in ([sys.executable, "-m", "venv", "--without-pip", str(place)], pip):
        with log.open("wb") as out:
            status = child.run(words, _INSTALLING, out, root)
        if status != 0:
            return Environment(python, {}, f"not installed: {_reason(status, _INSTALLING, log)}")
        (packages,) = (place / "lib").glob("python*/site-packages")
        base = site.getsitepackages()
        (packages / "base.pth").write_text("".join(f"import site; site.addsitedir({each!r})\n" for each in base))
    paths = [str(packages), *base]
    versions = {each: next(iter(metadata.distributions(name=each, path=paths))).version for each in distributions}
    finished.write_text(json.dumps({"wanted": wanted, "versions": versions}))
    return Environment(python, versions)


def _common() -> dict[str, Any]:
    return {each: machine.versions()[each] for each in ("torch", "torchvision", "Pillow")}


def _reason(status: int | None, limit: float, log: Path) -> str:
    """Why a command failed: what it said last, without this machine's folders."""
    if status is None:
        return f"{_LATE} {limit:.0f} s"
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error:")]
    said = (errors or lines or [f"status {status}"])[-1]
    how = f"ended by signal {-status}: " if status < 0 else ""
    return how + re.sub(r"(?:/[^\s/'\"]+)+/", "", said)[:200]


# -- measuring ----------------------------------------------------------------------------------------------


class Process(NamedTuple):
    """What all processes that measure have in common.

    Attributes:
        words: arguments of their commands. scratch: a folder for their files. ends: the time after which none runs.
        bar: shows which runs.
    """

    words: Sequence[str]
    scratch: Path
    ends: float
    bar: screen.Bar

    def run(self, python: str, workloads: int, *module: str, options: Sequence[str] = ()) -> dict[str, Any] | str:
        """The result of a module that measures a number of workloads; or why there is none.

        Raises:
            Red: accel's values are not torchvision's.
        """
        out, log = self.scratch / "result.json", self.scratch / "log.txt"
        out.unlink(missing_ok=True)
        limit = min(_STARTING + _MEASURING * workloads, self.ends - time.monotonic())
        if limit <= 0:
            return "no time was left (--minutes)"
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.bar.say(" ".join(module))
        with log.open("wb") as said:
            words = [python, "-m", *module, *self.words, *options, "--out", str(out)]
            # numba counts cores when it is imported, which may be while a workload is pinned to one
            own = {"PYTHONPATH": os.pathsep.join(paths), "NUMBA_NUM_THREADS": str(os.cpu_count())}
            status = child.run(words, limit, said, ROOT, {**os.environ, **own})
        if status != 0:
            reason = _reason(status, limit, log)
            if status == 1 and reason.startswith(("train: ", f"bench: {OURS.title} ")):
                raise Red(reason)
            return reason
        result: dict[str, Any] = json.loads(out.read_text())
        there = result["versions"]
        wrong = [f"{each} {there[each]}, not {here}" for each, here in _common().items() if there[each] != here]
        return f"its environment has {', '.join(wrong)}" if wrong else result


def rows(who: Contestant, workloads: Sequence[str], made: Environment, process: Process) -> dict[str, dict[str, Any]]:
    """A contestant's entries by workload, with the rounds of torchvision and accel that took turns with it.

    One process runs all; if that fails, each runs in one of its own, and only those fail that have to. What hangs would
    do so again.
    """
    found: dict[str, Any] | str
    found = made.why_not or process.run(made.python, len(workloads), "bench", *workloads, "--against", who.key)
    if isinstance(found, dict):
        return {workload: _row(who, found["workloads"][workload]["entries"]) for workload in workloads}
    if len(workloads) > 1 and not made.why_not and not found.startswith(_LATE):
        return {each: rows(who, [each], made, process)[each] for each in workloads}
    about = {"contestant": who.key, "name": who.title, "settings": who.settings, "exact": who.exact}
    return {workload: {**about, "not run": found} for workload in workloads}


def _row(who: Contestant, entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    beside = {each["contestant"]: each["rounds"] for each in reversed(entries) if each["exact"]}
    return {**next(each for each in entries if each["contestant"] == who.key), "beside": beside}


def measured(
    workloads: Sequence[str], who: Sequence[Contestant], made: dict[str, Environment], process: Process
) -> dict[str, Any]:
    """The parts of workloads, with an entry for each contestant that can run their pipelines.

    Raises:
        WrongUsage: torchvision and accel did not run.
    """
    side_by_side = [each for each in workloads if each != "training"]
    parts: dict[str, Any] = {}
    if side_by_side:
        found = process.run(sys.executable, len(side_by_side), "bench", *side_by_side, "--against", _FIRST.key)
        if isinstance(found, str):
            raise WrongUsage(f"torchvision and accel: {found}")
        parts |= found["workloads"]
    if "training" in workloads:
        found = process.run(sys.executable, 3, "bench.train", "shufflenet", options=_TRAINING)
        if isinstance(found, str):
            screen.note(f"training is left out: {found}")
        else:
            parts |= found["workloads"]
    for each in who:
        names = [name for name in side_by_side if (name if name in PIPELINES else "train") in each.pipelines]
        if names and each not in (REFERENCE, OURS, _FIRST):
            for name, row in rows(each, names, made[each.key], process).items():
                parts[name]["entries"].append(row)
    return parts


# -- the command --------------------------------------------------------------------------------------------


@command("public")
def main(argv: Sequence[str] | None = None) -> int:
    """Install and measure. Exit status: 0 measured, 1 accel's values are not torchvision's (nothing is reported),
    2 wrong usage."""
    options = _parser()
    args = options.parse_args(argv)
    workloads = known("workload", args.workloads, dict.fromkeys(_USUAL))
    who = list(known("contestant", args.only, CONTESTANTS).values())
    needed = dict.fromkeys(each.distributions for each in who)
    with screen.Bar("installing", len(needed)) as bar:
        found = {}
        for each in needed:
            found[each] = environment(args.env.resolve(), each, args.install)
            bar.advance()
    made = {each.key: found[each.distributions] for each in who}
    if args.install:
        show(Table("environments", ("", "versions"), [(key, _versions(each)) for key, each in made.items()], text=2))
        return 0
    begun = time.monotonic()
    with (
        folder(args.data) as (data, name),
        tempfile.TemporaryDirectory(prefix="accel-public-") as scratch,
        screen.Bar("measuring") as bar,
    ):
        files = len(open_folder(data).files)
        words = ("--data", str(data.resolve()), "--images", str(args.images), "--rounds", str(args.rounds))
        process = Process(words, Path(scratch), begun + 60 * args.minutes, bar)
        parts = measured(list(workloads), who, made, process)
    result = {
        "command": " ".join(["python -m bench public", *args.workloads, *_given(args, options)]),
        "data": {"name": name, "images": files},
        "images": args.images,
        "rounds": args.rounds,
        "seconds taken": round(time.monotonic() - begun),
        "contestants": _status(parts),
        "environments": {key: each.versions for key, each in made.items() if each.versions},
        "workloads": parts,
    }
    write(args.out, result)
    for table in (table for part in parts.values() for table in tables(part)):
        show(table)
    usual = args.out == options.get_default("out")
    return report.main([] if usual else [str(args.out), "--out", str(args.out.with_suffix(".md"))])


def _given(args: argparse.Namespace, options: argparse.ArgumentParser) -> list[str]:
    """The options that are not the defaults, without this machine's folders."""
    told = {"data": args.data and "DIR", "only": ",".join(args.only)}
    told |= {each: getattr(args, each) for each in ("images", "rounds", "minutes")}
    return [f"--{name} {value}" for name, value in told.items() if value and value != options.get_default(name)]


def _versions(made: Environment) -> str:
    return made.why_not or ", ".join(f"{name} {version}" for name, version in made.versions.items())


def _status(parts: dict[str, Any]) -> dict[str, str]:
    """For each contestant "runs", or why it did nowhere."""
    entries = [each for part in parts.values() for each in part.get("entries", [])]
    failed = {each["contestant"]: each["not run"] for each in entries if "not run" in each}
    return failed | {each["contestant"]: "runs" for each in entries if "not run" not in each}


def _parser() -> argparse.ArgumentParser:
    options = parser(
        "bench public",
        "Install every contestant into an environment of its own, which shares torch with this one, measure it there "
        "beside torchvision and accel, and write bench/REPORT.md. Where accel's values are not torchvision's, nothing "
        "is reported and the exit status is 1.",
        out="bench-public.json",
        rounds=3,
        images=100,
        least=(4, 1),
    )
    options.epilog = f"Workloads: {', '.join(_USUAL)}. Contestants: {', '.join(CONTESTANTS)}."
    place, only = "the folder of the environments [.contestants]", "measure these beside torchvision and accel [all]"
    options.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="what to measure [all]")
    options.add_argument("--only", type=comma_separated, default=[], metavar="NAME,...", help=only)
    options.add_argument("--minutes", type=at_least(1), default=30, metavar="N", help="at most [%(default)s]")
    options.add_argument("--env", type=Path, default=ROOT / ".contestants", metavar="DIR", help=place)
    options.add_argument("--install", action="store_true", help="make all environments anew, and measure nothing")
    return options
