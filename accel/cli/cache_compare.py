"""Comparing a cache's entries for the files of a folder with what is made of the files anew."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from accel.cache import survey
from accel.cli.arguments import WrongUsage
from accel.codec import foreign
from accel.codec.header import Header, Raw, claim
from accel.processes import switch
from accel.recipes.options import Selection
from accel.recipes.recipe import Recipe, Source
from accel.runtime import compute
from accel.runtime.memo import cached, planes, result_entries


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
        said, raw, steps = made
        out = np.empty(entry.size, np.uint8)
        sound = known.cache.read(entry, 0, len(entry.ends), out)
        if isinstance(header, Header):
            header = header._replace(reference="torchvision" if said == "torchvision" else "pillow")
        asked = Source(data, header, source.name, reference)
        yield "result", out.reshape(raw.height, raw.width, -1) if sound else None, Recipe(asked, steps)
