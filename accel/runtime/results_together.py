"""Batches of files all of which begin with a cached result, handled without making sources."""

from __future__ import annotations

from accel.planning.order import parts
from accel.recipe import Recipe, Source
from accel.rows import Rows, Structure
from accel.runtime.cached_together import CachedFiles
from accel.runtime.result_entries import Beginning, Found, found_of, steps_of
from accel.runtime.result_pixels import Compute, Result, Unread, converted, split
from accel.runtime.results import beginning_of_row, first_steps, structure_on_pixels


def rows_of(rows: Rows, files: CachedFiles, compute: Compute) -> Rows | None:
    """The rows that begin with results; None if some file has none of all the steps that come each time, or the results
    cannot be read together.

    ``compute``: computes the pixels of a recipe, in place of a damaged entry.
    """
    structures = _split(rows, files)
    if structures is None:
        return None
    before, after = structures
    results = list[Found]()
    for place, row in enumerate(rows.numbers[:, : before.columns].tolist()):
        found = _found(files, place, beginning_of_row(before, tuple(row)))
        if found is None or found.raw.mode != (results or [found])[0].raw.mode:
            return None
        results.append(found)

    def result(place: int) -> Source:
        source, steps = rows[place]
        entry, raw, length = results[place]
        return Result(Recipe(source, parts(steps)[0][:length]), entry, raw, compute)

    return Rows(
        Unread(
            [found.entry for found in results],
            [found.raw for found in results],
            files.found[0].known.cache,
            files.selection,
            result,
        ),
        after,
        rows.numbers[:, : after.columns],
    )


def _split(rows: Rows, files: CachedFiles) -> tuple[Structure, Structure] | None:
    """Split the steps after those that the first file's result is of; None if it has no result of all the steps that
    come each time."""
    result, on_pixels = files.found[0].known.result, structure_on_pixels(rows.structure)
    if result is None or on_pixels is None:
        return None
    count, of_grey = steps_of(result), converted(rows)
    length = count - int(of_grey[0])
    if count < len(on_pixels.steps(rows.numbers[0].tolist())) and first_steps(rows) != length:
        return None
    return split(rows.structure, rows.numbers, (length + of_grey).tolist())


def _found(files: CachedFiles, place: int, begins: Beginning) -> Found | None:
    *_, file, known = files.found[place]
    if file.begun is None or file.begun[0] is not begins or file.begun[1] is not known:
        file.begun = begins, known, found_of(files[place], begins, known.result, known.pixels)
    found: Found | None = file.begun[2]
    return found if found is not None and found.length == len(begins.steps) else None
