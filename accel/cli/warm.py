"""``python -m accel warm``: compile everything ahead of time, for container images and for CI."""

from __future__ import annotations

import argparse
import time
from typing import Any

from accel import backend
from accel.cli import screen
from accel.cli.arguments import Red, at_least
from accel.errors import attempt
from accel.native import cache, units


def add_parser(commands: Any) -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "warm",
        help="compile everything ahead of time",
        description="Compile all that runs on the host, in several processes, and keep it in the folder that "
        "ACCEL_CACHE_DIR names (else in the user's cache). It serves any installation of this version on machines "
        "with the same kind of processor; other machines compile their own. What is there already stays.",
    )
    parser.add_argument(
        "--processes", type=at_least(1), metavar="N", help="compile in so many processes (default: one for each core)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    begun = time.perf_counter()
    for name in backend.availability():
        attempt(backend.find, name)  # imports it, and so its units, if possible
    all_units = units.units()
    with screen.Bar("compiling", len(all_units)) as bar:
        made = units.ready(all_units, processes=args.processes, done=lambda unit: bar.advance())
    lost = [unit.name for unit in all_units if cache.read(unit.file) is None]
    seconds = time.perf_counter() - begun
    names = ", ".join(sorted(unit.name for unit in made))
    said = f"compiled {names} in {seconds:.1f} s" if made else f"all {len(all_units)} units were there"
    screen.out.print(said, markup=False)
    folder = attempt(cache.folder)
    if lost:
        raise Red(f"not kept: {', '.join(lost)} (folder: {folder})")
    screen.out.print(f"kept in {folder}", markup=False, soft_wrap=True)
    return 0
