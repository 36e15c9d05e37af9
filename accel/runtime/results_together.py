"""A batch of files of all of which a cache has the results that they begin with: no source is made of any."""

from __future__ import annotations

from accel.planning.order import parts
from accel.recipe import Recipe, Source
from accel.rows import Rows
from accel.runtime.cached_together import CachedFiles
from accel.runtime.result_entries import Beginning, Found, found_of
from accel.runtime.result_pixels import Compute, Result, Unread, shows_most, structure_after
from accel.runtime.results import split_row


def rows_of(rows: Rows, files: CachedFiles, compute: Compute) -> Rows | None:
    """The rows, which begin with results; None where some file has none of all steps that come each time, or they are
    not read together.

    ``compute``: the pixels of a recipe, for what is damaged.
    """
    results = list[Found]()
    for place, row in enumerate(map(tuple, rows.numbers.tolist())):
        split = split_row(rows.structure, row)
        found = None if split is None else _found(files, place, split[0])
        if found is None:
            return None
        results.append(found)
    raw, structure = results[0].raw, structure_after(rows, [found.length for found in results])
    if structure is None or any(found.raw != raw for found in results):
        return None
    numbers = rows.numbers[:, : structure.columns]
    if not shows_most(structure, numbers[0].tolist(), raw):
        return None

    def result(place: int) -> Source:
        source, steps = rows[place]
        entry, _, length = results[place]
        return Result(Recipe(source, parts(steps)[0][:length]), entry, raw, compute)

    return Rows(
        Unread([found.entry for found in results], raw, files.found[0].known.cache, files.selection, result),
        structure,
        numbers,
    )


def _found(files: CachedFiles, place: int, begins: Beginning) -> Found | None:
    *_, file, known = files.found[place]
    if file.begun is None or file.begun[0] is not begins or file.begun[1] is not known:
        file.begun = begins, known, found_of(files[place], begins, known.result, known.pixels)
    found: Found | None = file.begun[2]
    return found if found is not None and found.length == len(begins.steps) else None
