"""``python -m accel cache``: list, verify, fill or clear a cache that outlives the run."""

from __future__ import annotations

import argparse
from pathlib import Path

from accel.cache import folder as folders
from accel.cache import survey
from accel.cache.folder import Unusable
from accel.cli import cache_compare, cache_fill, screen
from accel.cli.arguments import Red, WrongUsage
from accel.cli.tables import Table, show
from accel.runtime.memo import cached

_SHOWN = 20


def run(args: argparse.Namespace) -> int:
    try:
        if args.action == "fill":
            return _fill(args.folder, args.data, args.processes)
        folder = folders.in_memory() if args.folder is None else Path(args.folder).expanduser().absolute()
        if args.data is not None:
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
    screen.say(f"all {found.entries} entries are sound: {folder}")
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
    screen.say(f"{said} are what the files give, in every bit")
    return 0


def _fill(place: str, data: Path, processes: int | None) -> int:
    paths = cache_compare.files(data)
    with screen.Bar("filling", len(paths)) as bar:
        found = cache_fill.filled(place, paths, processes, bar.advance)
    said = f"{found.new} of {len(paths)} files put in, {found.known} were there"
    rest = ((found.others, "others have no such form"), (found.full, "found no room"))
    screen.say(", ".join([said, *(f"{n} {what}" for n, what in rest if n)]))
    return 0


def _clear(folder: Path) -> int:
    try:
        size = survey.clear(folder)
    except OSError as error:
        raise Red(str(error)) from error
    screen.say(f"{size / 1e6:.1f} MB removed: {folder}")
    return 0
