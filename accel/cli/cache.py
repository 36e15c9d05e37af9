"""``python -m accel cache``: list, verify, fill or clear a cache that outlives the run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from accel.cache import folder as folders
from accel.cache import survey
from accel.cache.folder import Unusable
from accel.cli import cache_compare, cache_fill, screen
from accel.cli.arguments import Red, WrongUsage, at_least
from accel.cli.tables import Table, show
from accel.runtime import cached

_SHOWN = 20


def add_parser(commands: Any) -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "cache",
        help="what is kept from run to run: list, verify, fill, clear",
        description='Show what a cache (the option cache="64GB", or cache="/folder:400GB") has of files, read all of '
        "it and check it, fill it ahead of a training, or empty it. Nobody may use it while it is emptied.",
    )
    actions = ("list", "verify", "fill", "clear")
    parser.add_argument("action", nargs="?", choices=actions, default="list", help="default: list")
    parser.add_argument(
        "folder",
        nargs="?",
        metavar="FOLDER",
        help="default: the user's, in memory; fill: with a size, as the option",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="verify: decode the JPEG files below DIR again, and compare; fill: put in half-decoded what random crops "
        "need of these",
    )
    parser.add_argument(
        "--processes", type=at_least(1), metavar="N", help="fill: in so many processes (default: one for each core)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        if args.data is not None and not args.data.is_dir():
            raise WrongUsage(f"there is no such folder: {args.data}")
        if args.processes is not None and args.action != "fill":
            raise WrongUsage("--processes is for fill")
        if args.action == "fill":
            if args.data is None or args.folder is None:
                raise WrongUsage("fill needs what the option cache has, such as /folder:400GB, and --data DIR")
            return _fill(args.folder, args.data, args.processes)
        folder = folders.in_memory() if args.folder is None else Path(args.folder).expanduser().absolute()
        if args.data is not None:
            if args.action != "verify":
                raise WrongUsage("--data is for verify and fill")
            _verify(folder)
            return _compare(folder, args.data)
        return {"list": _list, "verify": _verify, "clear": _clear}[args.action](folder)
    except Unusable as error:
        raise WrongUsage(str(error)) from error


def _list(folder: Path) -> int:
    found = survey.survey(folder)
    names = [survey.NAMES.get(each.kind, f"kind {each.kind}") for each in found.kinds]
    rows = [
        (name, str(each.entries), str(each.segments), f"{each.size / 1e6:.1f}")
        for name, each in zip(names, found.kinds, strict=True)
    ]
    keys = f"{found.keys} keys (a file's own, and one for each of its results but the first)"
    notes = [f"{keys}; {found.size / 1e6:.1f} MB on the disk; version {found.version}", *found.faults]
    if found.version != cached.VERSION:
        notes.append(f"this accel's caches are of version {cached.VERSION}: this one is not used until it is cleared")
    show(Table(str(folder), ("kept", "entries", "segments", "MB"), rows, notes))
    return 0


def _verify(folder: Path) -> int:
    total = sum(each.entries for each in survey.survey(folder).kinds)
    with screen.Bar("reading", total) as bar:
        found = survey.verified(folder, bar.advance)
    for said in (*found.faults, *found.damaged[:_SHOWN]):
        screen.note(said)
    if found.damaged:
        raise Red(f"{len(found.damaged)} of {found.entries} entries are damaged, and are not used: {folder}")
    if found.faults:
        raise Red(f"the table is damaged, and all {found.entries} entries are sound: {folder}")
    screen.out.print(f"all {found.entries} entries are sound: {folder}", markup=False, soft_wrap=True)
    return 0


def _compare(folder: Path, data: Path) -> int:
    paths = cache_compare.files(data)
    with screen.Bar("comparing", len(paths)) as bar:
        found = cache_compare.compared(folder, paths, bar.advance)
    for said in found.wrong[:_SHOWN]:
        screen.note(said)
    said = f"{found.planes} planes and {found.results} results of {found.known} of {found.files} files"
    if found.wrong:
        raise Red(f"of {said}, {len(found.wrong)} are not what the files give: {folder}")
    screen.out.print(f"{said} are what the files give, in every bit", markup=False, soft_wrap=True)
    return 0


def _fill(place: str, data: Path, processes: int | None) -> int:
    paths = cache_compare.files(data)
    with screen.Bar("filling", len(paths)) as bar:
        found = cache_fill.filled(place, paths, processes, bar.advance)
    said = f"{found.new} of {len(paths)} files put in, {found.known} were there"
    rest = ((found.others, "others have no such form"), (found.full, "found no room"))
    screen.out.print(", ".join([said, *(f"{n} {what}" for n, what in rest if n)]), markup=False, soft_wrap=True)
    return 0


def _clear(folder: Path) -> int:
    try:
        size = survey.clear(folder)
    except OSError as error:
        raise Red(str(error)) from error
    screen.out.print(f"{size / 1e6:.1f} MB removed: {folder}", markup=False, soft_wrap=True)
    return 0
