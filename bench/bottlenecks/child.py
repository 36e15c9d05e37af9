"""Plants, each in a process of its own: run under the profiler, then again with each piece of advice applied.

The processes are forked, so that torch is imported once for all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
import warnings
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import accel
from accel.profiling import predict
from accel.profiling.report import Report
from bench.bottlenecks import PLANTS, steps
from bench.bottlenecks.plant import Plant
from bench.bottlenecks.script import Script

_LIMIT = 240  # seconds


def main() -> int:
    """For each name a JSON file in the folder ``out``, with what was found or what went wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("plants", nargs="+")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", "This DataLoader will create")  # 16 workers on two cores are meant
    for name in args.plants:
        plant, out = PLANTS[name], args.out / f"{name}.json"
        if plant.apart or len(args.plants) == 1:
            _write(plant, args.folder, out, 0 if args.plain else args.rounds)
            continue
        pid = os.fork()
        if not pid:
            os.setpgid(0, 0)
            try:
                _write(plant, args.folder, out, 0 if args.plain else args.rounds)
            finally:
                sys.stderr.flush()
                os._exit(0)
        if not _ended(pid):
            os.killpg(pid, 9)
            os.waitpid(pid, 0)
            _put(out, {"error": f"no end after {_LIMIT} s"})
    return 0


def _ended(pid: int) -> bool:
    until = time.monotonic() + _LIMIT
    while time.monotonic() < until:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return True
        time.sleep(0.02)
    return False


def _write(plant: Plant, folder: Path, out: Path, rounds: int) -> None:
    os.environ.update(plant.environment)  # also for libc, whose functions a slow disk asks for it
    with ExitStack() as stack:
        if plant.device:
            stack.callback(steps.stand_in()._destroy)
        try:
            _put(out, profiled(plant, folder, rounds) if rounds else plainly(plant, folder))
        except Exception:
            _put(out, {"error": traceback.format_exc()})


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
    """What the profiler finds, and what its advice brings: in turns with the script itself, profiled anew, so that what
    else runs on the machine comes over the prediction and what it is compared with alike."""
    report, failed = _report(plant, folder)
    names = ("text", "change", "rate", "predicted_rate", "at_most", "cost", "whole_epochs")
    advice: list[dict[str, Any]] = [
        {**{name: getattr(each, name) for name in names}, "rounds": [], "measured": None} for each in report.advice
    ]
    found, again = [report.bottleneck], report
    tried = [each for each in advice if each["change"] is not None]
    for number in range(rounds if tried else 0):
        if number:
            again, _ = _report(plant, folder)
            found.append(again.bottleneck)
        for each in tried:
            each["rounds"].append([predicted(again, each), _tried(plant.script, each, folder)])
    for each in tried:
        both = [(said, rate) for said, rate in each["rounds"] if said and rate]
        rates = [rate for _, rate in each["rounds"] if rate]
        each["measured"] = median(rates) if rates else None
        if both:
            each["predicted_rate"] = median(said for said, _ in both)
    return {
        "found": found[0],
        "found in each round": found,
        "why": report.verdict.why,
        "failed": failed,
        "advice": advice,
        "screen": str(report),
        "measured": report.measured.to_dict(),
    }


def _report(plant: Plant, folder: Path) -> tuple[Report, str | None]:
    """The profiler's report on a run of the script, and how that failed."""
    failed = None
    with plant.machine(), ExitStack() as stack:
        if not plant.inside:
            stack.enter_context(plant.script.in_force())
        try:
            with accel.profile(show=False) as report:
                (plant.script.run if plant.inside else plant.script.train)(folder)
        except RuntimeError as error:
            failed = str(error).strip().splitlines()[-1]
    return report, failed


def predicted(report: Report, advice: dict[str, Any]) -> float | None:
    """What a report predicts of a change that was advised by another, on the same script."""
    for each in report.advice:
        if each.change == advice["change"]:
            return each.predicted_rate
    its, fields = report.verdict.flow, {"num_workers": "workers", "prefetch_factor": "prefetch"}
    if its is None or not advice["change"].keys() <= fields.keys():
        return None
    changes = {fields[name]: value for name, value in advice["change"].items()}
    return predict.rate(its, replace(predict.present(its), **changes))


def _tried(script: Script, advice: dict[str, Any], folder: Path) -> float | None:
    """The rate with a change, once all workers have begun, over some turns of them; None if it fails."""
    changed = script.changed(advice["change"])
    workers = max(changed.loader.get("num_workers", 0), 1)
    if script.length:
        changed = replace(changed, batches=2 * workers + workers * max(4, min(16, 64 // workers)))
    try:
        timed = changed.run(folder)
    except RuntimeError:
        return None
    return timed.rate if advice["whole_epochs"] else timed.steady


if __name__ == "__main__":
    sys.exit(main())
