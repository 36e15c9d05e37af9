"""Running plants, each in its own process: under the profiler, then again with each piece of advice applied.

The processes are forked, so that torch is imported once for all of them.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import sys
import time
import traceback
import warnings
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import accel
from accel.profiling import predict
from accel.profiling.advice import candidates
from accel.profiling.report import Report
from accel.system.cores import cores
from bench.bottlenecks import PLANTS, steps
from bench.bottlenecks.load import Load
from bench.bottlenecks.plant import Plant
from bench.bottlenecks.script import Script

_LIMIT = 240  # seconds for a plant; and those after which no further round begins
_ENOUGH = 60
_ALIKE = 0.15  # the most part of the cores by which comparable runs may differ
_WITHOUT = "without "


def main() -> int:
    """Write for each plant a JSON file in the folder ``out``, with the findings or an error."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("plants", nargs="+")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", "This DataLoader will create")  # 16 workers on two cores are intended
    for name in args.plants:
        plant, out = PLANTS[name], args.out / f"{name}.json"
        pid = os.fork()
        if not pid:
            os.setpgid(0, 0)
            try:
                _write(plant, args.folder, out, 0 if args.plain else args.rounds)
            finally:
                sys.stderr.flush()
                os._exit(0)
        if not _ended(pid):
            where = out.with_suffix(".where")
            text = where.read_text() if where.exists() else ""
            os.killpg(pid, 9)
            os.waitpid(pid, 0)
            _put(out, {"error": f"{text}\nno end after {_LIMIT} s"})
    return 0


def _ended(pid: int) -> bool:
    until = time.monotonic() + _LIMIT
    while time.monotonic() < until:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return True
        time.sleep(0.02)
    return False


def _write(plant: Plant, folder: Path, out: Path, rounds: int) -> None:
    os.environ.update(plant.environment)  # also visible to libc, by which slow_files.c reads it
    with out.with_suffix(".where").open("w") as where, ExitStack() as stack:
        faulthandler.dump_traceback_later(_LIMIT - 2, file=where)
        if plant.device:
            stack.callback(steps.stand_in()._destroy)
        try:
            _put(out, profiled(plant, folder, rounds) if rounds else plainly(plant, folder))
        except Exception:
            _put(out, {"error": traceback.format_exc()})
        faulthandler.cancel_dump_traceback_later()


def _put(out: Path, found: dict[str, Any]) -> None:
    out.with_suffix(".part").write_text(json.dumps(found))
    out.with_suffix(".part").rename(out)


def plainly(plant: Plant, folder: Path) -> dict[str, Any]:
    """The rates of the script and of its cure, without the profiler."""
    found: dict[str, Any] = {}
    for name, script in (("planted rate", plant.script), ("cured rate", plant.cure)):
        if script is None:
            continue
        try:
            timed = script.run(folder)
            found[name] = timed.steady if script.length else timed.rate
        except RuntimeError as error:
            found[name] = str(error)
    return found


def profiled(plant: Plant, folder: Path, rounds: int) -> dict[str, Any]:
    """The profiler's findings, and the gain by its advice. Before each run of a change the script itself is profiled
    again, so that other load on the machine affects the prediction and its comparison alike.

    A round in which other programs took more of the cores in one of the two says little: it is repeated, up to a limit.
    """
    begun = time.monotonic()
    report, failed, load = _report(plant, folder)
    names = ("text", "change", "rate", "predicted_rate", "at_most", "at_least", "cost", "whole_epochs")
    advice: list[dict[str, Any]] = [
        {**{name: getattr(each, name) for name in names}, "rounds": []} for each in report.advice
    ]
    left = [] if any(each["change"] for each in advice) else _not_advised(report)
    found, all_measured, fresh = [report.bottleneck], [asdict(report.measured)], True
    again = report
    for each in [*advice, *left]:
        script = _followed(plant, each)
        while script is not None and _wanted(each["rounds"], rounds, time.monotonic() - begun):
            if not fresh:
                again, _, load = _report(plant, folder)
                found.append(again.bottleneck)
                all_measured.append(asdict(again.measured))
            fresh = False
            with plant.machine(), Load() as then:
                rate = _tried(script, each["whole_epochs"], folder)
            others = [load.others, then.others]
            each["rounds"].append({"predicted": predicted(again, each), "measured": rate, "others": others})
    return {
        "found": found[0],
        "found in each round": found,
        "why": report.verdict.why,
        "failed": failed,
        "advice": advice,
        "not advised": left,
        "screen": str(report),
        "measured": all_measured,
    }


def _not_advised(report: Report) -> list[dict[str, Any]]:
    """A change that is not advised, as no gain is predicted; [] if nothing can be predicted."""
    its = report.verdict.flow
    if its is None or report.bottleneck in ("none", "threads", "shm", "startup"):
        return []
    number = 2 * its.loader.num_workers or 2
    return [
        {
            "text": f"(not advised: num_workers={number})",
            "change": {"num_workers": number},
            "rate": its.rate,
            "predicted_rate": None,
            "at_most": False,
            "at_least": False,
            "cost": "",
            "whole_epochs": False,
            "rounds": [],
        }
    ]


def _wanted(rounds: list[dict[str, Any]], number: int, took: float) -> bool:
    """Whether another round is wanted, until ``number`` of them are comparable."""
    return not rounds or (took < _ENOUGH and len(rounds) < 4 * number and sum(map(alike, rounds)) < number)


def alike(one: dict[str, Any]) -> bool:
    """Whether other programs used about as much of the machine in both runs of a round."""
    before, after = one["others"]
    return before is None or after is None or abs(after - before) <= _ALIKE * cores()


def _followed(plant: Plant, advice: dict[str, Any]) -> Script | None:
    """The plant's script with a piece of advice followed; None if a program cannot follow it."""
    if advice["change"] is not None:
        return plant.script.changed(advice["change"])
    return plant.cure if plant.names and advice["text"].startswith(_WITHOUT) else None


def _report(plant: Plant, folder: Path) -> tuple[Report, str | None, Load]:
    """The profiler's report on a run of the script, the error if it failed, and the load by other programs."""
    failed = None
    with plant.machine(), Load() as load, ExitStack() as stack:
        if not plant.inside:
            stack.enter_context(plant.script.in_force())
        try:
            with accel.profile(show=False) as report:
                (plant.script.run if plant.inside else plant.script.train)(folder)
        except RuntimeError as error:
            failed = str(error).strip().splitlines()[-1]
    return report, failed, load


def predicted(report: Report, advice: dict[str, Any]) -> float | None:
    """A report's prediction for a change that another report, on the same script, advised; None if it has none."""
    for each in candidates(report.measured, report.verdict):
        if each.change == advice["change"] and (each.change or each.text.startswith(_WITHOUT)):
            return each.predicted_rate
    its, fields = report.verdict.flow, {"num_workers": "workers", "prefetch_factor": "prefetch"}
    if its is None or not advice["change"] or not advice["change"].keys() <= fields.keys():
        return None
    changes = {fields[name]: value for name, value in advice["change"].items()}
    modest = its.cpu_made > 0.5 * its.alone  # as for the decision to advise it
    return predict.rate(its, replace(predict.present(its), **changes), modest=modest)


def _tried(script: Script, whole_epochs: bool, folder: Path) -> float | None:
    """The rate of a script, over some turns of its workers once all have begun; None if it fails."""
    workers = max(script.loader.get("num_workers", 0), 1)
    if script.length:
        script = replace(script, batches=2 * workers + workers * max(4, min(16, 64 // workers)))
    try:
        timed = script.run(folder)
    except RuntimeError:
        return None
    return timed.rate if whole_epochs else timed.steady


if __name__ == "__main__":
    sys.exit(main())
