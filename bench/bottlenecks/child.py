"""One plant in a process of its own: run under the profiler, then again with each piece of advice applied."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.bottlenecks import PLANTS, steps
from bench.bottlenecks.plant import Plant
from bench.bottlenecks.script import Script


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("plant")
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--plain", action="store_true")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", "This DataLoader will create")  # 16 workers on two cores are meant
    plant = PLANTS[args.plant]
    with ExitStack() as stack:
        if plant.device:
            stack.callback(steps.stand_in()._destroy)
        args.out.write_text(json.dumps((plainly if args.plain else profiled)(plant, args.folder)))
    return 0


def plainly(plant: Plant, folder: Path) -> dict[str, Any]:
    """The rates of the script and of its cure, without the profiler."""
    found: dict[str, Any] = {}
    for name, script in (("planted rate", plant.script), ("cured rate", plant.cure)):
        try:
            timed = script and script.run(folder)
        except RuntimeError as error:
            found[name] = str(error)
        else:
            found[name] = timed and (timed.steady if script.epochs == 1 else timed.rate)
    return found


def profiled(plant: Plant, folder: Path) -> dict[str, Any]:
    """What the profiler finds, and what its advice brings."""
    import accel

    failed = None
    with plant.machine():
        try:
            with accel.profile(show=False) as report:
                plant.script.run(folder)
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
        timed = replace(script.changed(advice.change), cores=None).run(folder)
    except RuntimeError as error:
        return {**said, "measured": None, "failed": str(error)}
    return {**said, "measured": timed.rate if advice.whole_epochs else timed.steady}


if __name__ == "__main__":
    sys.exit(main())
