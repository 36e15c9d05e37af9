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
from typing import Any

import accel
from bench.bottlenecks import PLANTS, steps
from bench.bottlenecks.plant import Plant
from bench.bottlenecks.script import Script

_LIMIT = 120  # seconds


def main() -> int:
    """For each name a JSON file in the folder ``out``, with what was found or what went wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("plants", nargs="+")
    parser.add_argument("--plain", action="store_true")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", "This DataLoader will create")  # 16 workers on two cores are meant
    for name in args.plants:
        plant, out = PLANTS[name], args.out / f"{name}.json"
        if plant.apart or len(args.plants) == 1:
            _write(plant, args.folder, out, args.plain)
            continue
        pid = os.fork()
        if not pid:
            os.setpgid(0, 0)
            try:
                _write(plant, args.folder, out, args.plain)
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


def _write(plant: Plant, folder: Path, out: Path, plain: bool) -> None:
    os.environ.update(plant.environment)  # also for libc, whose functions a slow disk asks for it
    with ExitStack() as stack:
        if plant.device:
            stack.callback(steps.stand_in()._destroy)
        try:
            _put(out, (plainly if plain else profiled)(plant, folder))
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


def profiled(plant: Plant, folder: Path) -> dict[str, Any]:
    """What the profiler finds, and what its advice brings."""
    failed = None
    with plant.machine(), ExitStack() as stack:
        if not plant.inside:
            stack.enter_context(plant.script.in_force())
        try:
            with accel.profile(show=False) as report:
                (plant.script.run if plant.inside else plant.script.train)(folder)
        except RuntimeError as error:
            failed = str(error)
    advice = [_tried(plant.script, each, folder) for each in report.advice]
    return {
        "found": report.bottleneck,
        "why": report.verdict.why,
        "failed": failed,
        "advice": advice,
        "screen": str(report),
        "measured": report.measured.to_dict(),
    }


def _tried(script: Script, advice: Any, folder: Path) -> dict[str, Any]:
    """A piece of advice and, where a program can apply it, the rate with it."""
    said = {name: getattr(advice, name) for name in ("text", "change", "rate", "predicted_rate", "at_most", "cost")}
    if advice.change is None:
        return {**said, "measured": None}
    try:
        changed = script.changed(advice.change)
        longer = max(script.batches, 4 * changed.loader.get("num_workers", 0)) if script.length else script.batches
        timed = replace(changed, batches=longer).run(folder)
    except RuntimeError as error:
        return {**said, "measured": None, "failed": str(error)}
    return {**said, "measured": timed.rate if advice.whole_epochs else timed.steady}


if __name__ == "__main__":
    sys.exit(main())
