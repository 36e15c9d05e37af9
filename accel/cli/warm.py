"""``python -m accel warm``: compile everything ahead of time, for container images and for CI."""

from __future__ import annotations

import argparse
import time

from accel import backend
from accel.cli import screen
from accel.cli.arguments import Red
from accel.errors import attempt
from accel.system.native import object_cache, units


def run(args: argparse.Namespace) -> int:
    start = time.perf_counter()
    for name in backend.availability():
        attempt(backend.find, name)  # imports it, and so its units, if possible
    all_units = units.units()
    with screen.Bar("compiling", len(all_units)) as bar:
        made = units.ready(all_units, processes=args.processes, done=lambda unit: bar.advance())
    lost = [unit.name for unit in all_units if object_cache.read(unit.file) is None]
    seconds = time.perf_counter() - start
    names = ", ".join(sorted(unit.name for unit in made))
    text = f"compiled {names} in {seconds:.1f} s" if made else f"all {len(all_units)} units were there"
    screen.say(text)
    folder = attempt(object_cache.folder)
    if lost:
        raise Red(f"not kept: {', '.join(lost)} (folder: {folder})")
    screen.say(f"kept in {folder}")
    return 0
