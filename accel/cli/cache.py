"""``python -m accel cache``: list, verify, fill or clear a cache that outlives the run."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from accel.cache import folder as folders
from accel.cache import survey
from accel.cache.folder import Unusable
from accel.cli import screen
from accel.cli.arguments import Red, WrongUsage
from accel.cli.tables import Table, show
from accel.codec import foreign
from accel.codec.files import reader
from accel.codec.header import Header, Raw, claim
from accel.codec.jpeg import UNIT
from accel.codec.jpeg import planes as jpeg_planes
from accel.processes import switch
from accel.recipes.options import Selection
from accel.recipes.recipe import Recipe, Source
from accel.runtime import compute
from accel.runtime.memo import cached, planes, result_entries
from accel.system.cores import cores
from accel.system.native import units

_SHOWN = 20
_TOGETHER = 64  # files that a process puts into a cache at a time


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
    for text in (*found.faults, *found.damaged[:_SHOWN]):
        screen.note(text)
    if found.damaged:
        raise Red(f"{len(found.damaged)} of {found.entries} entries are damaged, and are not used: {folder}")
    if found.faults:
        raise Red(f"the table is damaged, and all {found.entries} entries are sound: {folder}")
    screen.say(f"all {found.entries} entries are sound: {folder}")
    return 0


def _compare(folder: Path, data: Path) -> int:
    paths = files(data)
    with screen.Bar("comparing", len(paths)) as bar:
        found = compared(folder, paths, bar.advance)
    for text in found.wrong[:_SHOWN]:
        screen.note(text)
    text = f"{found.planes} planes and {found.results} results of {found.known} of {found.files} files"
    if found.wrong:
        raise Red(f"of {text}, {len(found.wrong)} are not what the files give: {folder}")
    screen.say(f"{text} are what the files give, in every bit")
    return 0


def _fill(place: str, data: Path, processes: int | None) -> int:
    paths = files(data)
    with screen.Bar("filling", len(paths)) as bar:
        counts = filled(place, paths, processes, bar.advance)
    text = f"{counts.new} of {len(paths)} files put in, {counts.known} were there"
    rest = ((counts.others, "others have no such form"), (counts.full, "found no room"))
    screen.say(", ".join([text, *(f"{n} {what}" for n, what in rest if n)]))
    return 0


def _clear(folder: Path) -> int:
    try:
        size = survey.clear(folder)
    except OSError as error:
        raise Red(str(error)) from error
    screen.say(f"{size / 1e6:.1f} MB removed: {folder}")
    return 0


# -- comparing ----------------------------------------------------------------------------------------------


class Compared(NamedTuple):
    """The number of files, of files in the cache, of planes and of results that were compared, and what differs."""

    files: int
    known: int
    planes: int
    results: int
    wrong: list[str]


def files(folder: Path) -> list[Path]:
    """All regular files in a folder and below it (opening a pipe would wait)."""
    found = (Path(place) / name for place, _, names in os.walk(folder, followlinks=True) for name in names)
    return sorted(path for path in found if path.is_file())


def compared(cache: Path, paths: list[Path], each: Callable[[], object] = lambda: None) -> Compared:
    """Compare whole pictures and results with the backend "reference"'s; ``each`` is called after each file.

    Raises:
        WrongUsage: the cache cannot be used by this version.
    """
    size = max(survey.survey(cache).size, 1000) // 1000
    try:
        selection = switch.select("cpu", {"cache": f"{cache}:{size}kB"})
    except ValueError as error:
        raise WrongUsage(f"this version cannot use the cache: {error}") from error
    reference = switch.select("reference", {"cache": None})
    known, counts, wrong = 0, {"planes": 0, "result": 0}, list[str]()
    for path in paths:
        sources = [cached.opened(str(path), selection, decoder=decoder) for decoder in foreign.DECODERS]
        found = {each.header: each for each in sources if each is not None}
        known += bool(found)
        for source in found.values():
            for kind, pixels, expected in _pairs(source, path.read_bytes(), reference):
                counts[kind] += 1
                if pixels is None or not np.array_equal(pixels, compute.pixels(expected)):
                    wrong.append(f"{path}: its {kind} {'cannot be read' if pixels is None else 'differ'}")
        each()
    return Compared(len(paths), known, counts["planes"], counts["result"], wrong)


def _pairs(
    source: Source, data: bytes, reference: Selection
) -> Iterator[tuple[str, npt.NDArray[np.uint8] | None, Recipe]]:
    """Yield the cache's entries for a file: kind, pixels (None: damaged), and a recipe of the same pixels."""
    known = source.cached
    header: Header | Raw | None = source.header
    if isinstance(header, Raw):
        data = bytes(foreign.pixels(data, header))
    else:
        header = claim(data)
    if header is None:
        return
    if known.planes is not None:
        box = 0, 0, header.height, header.width
        found = planes.region(source, box, header.channels)
        yield "planes", found, Recipe(Source(data, header, source.name, reference))
    for entry in (known.result, known.pixels):
        if entry is None or (made := result_entries.made_of(entry)) is None:
            continue
        reader_name, raw, steps = made
        out = np.empty(entry.size, np.uint8)
        sound = known.cache.read(entry, 0, len(entry.ends), out)
        if isinstance(header, Header):
            header = header._replace(reference="torchvision" if reader_name == "torchvision" else "pillow")
        whole = Source(data, header, source.name, reference)
        yield "result", out.reshape(raw.height, raw.width, -1) if sound else None, Recipe(whole, steps)


# -- filling ------------------------------------------------------------------------------------------------


class Filled(NamedTuple):
    """The number of files that were put in, were there already, have no half-decoded form, or found no room."""

    new: int = 0
    known: int = 0
    others: int = 0
    full: int = 0


def filled(
    place: str, paths: list[Path], processes: int | None = None, each: Callable[[int], object] = lambda count: None
) -> Filled:
    """Put files into the cache that the option ``cache=place`` names; ``each`` is called with numbers of files done.

    Raises:
        WrongUsage: there can be no such cache.
    """
    try:
        selection = switch.select("cpu", {"cache": place})
    except (TypeError, ValueError) as error:
        raise WrongUsage(str(error)) from error
    if selection.options.cache_size is None:
        raise WrongUsage(f"no cache can be there: {place}")
    units.ready([UNIT, jpeg_planes.UNIT])
    parts = [paths[at : at + _TOGETHER] for at in range(0, len(paths), _TOGETHER)]
    count = min(processes or cores(), len(parts))
    found = [Filled()]
    with ProcessPoolExecutor(count) if count > 1 else ThreadPoolExecutor(1) as pool:
        for done in as_completed([pool.submit(_filled, place, part) for part in parts]):
            found.append(done.result())
            each(sum(done.result()))
    return Filled(*map(sum, zip(*found, strict=True)))


def _filled(place: str, paths: list[Path]) -> Filled:
    """``filled`` for some files, in one process."""
    selection = switch.select("cpu", {"cache": place})
    cache = cached.of(selection.options)
    counts = dict.fromkeys(Filled._fields, 0)
    for path in paths:
        file = reader.read(path)
        header = None if file is None else file.header or claim(file.buffer, file.size)
        if cache is None or file is None or file.key is None or header is None:
            counts["others"] += 1
            continue
        data = memoryview(file.buffer)[: file.size]
        source = Source(data, header, str(path), selection, file.buffer, key=file.key)
        if not planes.fits(source):
            counts["others"] += 1
        elif (known := cached.known(file.key, selection)) is not None and known.planes is not None:
            counts["known"] += 1
        elif not planes.to_fill(source):
            counts["full"] += 1
        else:
            made = planes.decoded(source, (0, 0, 1, 1), header.channels, "auto")
            counts["new" if made is not None else "others"] += 1
    cached.flush()
    return Filled(**counts)
