"""Filling a cache ahead with half-decoded pictures of a folder's JPEG files, in several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import NamedTuple

from accel.cli.arguments import WrongUsage
from accel.codec.files import reader
from accel.codec.header import claim
from accel.codec.jpeg import UNIT, planes
from accel.processes import switch
from accel.recipes.recipe import Source
from accel.runtime.memo import cached
from accel.runtime.memo import planes as runtime
from accel.system.cores import cores
from accel.system.native import units

_TOGETHER = 64  # files


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
    units.ready([UNIT, planes.UNIT])
    parts = [paths[at : at + _TOGETHER] for at in range(0, len(paths), _TOGETHER)]
    count = min(processes or cores(), len(parts))
    found = list[Filled]()
    if count <= 1:
        made: Iterable[Filled] = map(partial(_filled, place), parts)
        for part in made:
            found.append(part)
            each(sum(part))
    else:
        with ProcessPoolExecutor(count) as pool:
            for done in as_completed([pool.submit(_filled, place, part) for part in parts]):
                found.append(done.result())
                each(sum(done.result()))
    return Filled(*map(sum, zip(*found, strict=True))) if found else Filled()


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
        if not runtime.fits(source):
            counts["others"] += 1
        elif (known := cached.known(file.key, selection)) is not None and known.planes is not None:
            counts["known"] += 1
        elif not runtime.to_fill(source):
            counts["full"] += 1
        else:
            made = runtime.decoded(source, (0, 0, 1, 1), header.channels, "auto")
            counts["new" if made is not None else "others"] += 1
    cached.flush()
    return Filled(**counts)
