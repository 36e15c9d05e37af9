"""Results of steps that are the same each time a file comes: looked up in a cache, made where it lacks them, and kept.

Recipes are rewritten with pixels as their sources and the remaining steps, so that a backend runs them as any other.
Images of which no result is to be kept are decoded, and their planes or pixels may be put in instead (``planes``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from time import process_time

import numpy as np
from torch import Tensor

from accel.backend import Backend, backend_of
from accel.cache.entry import RESULT, Entry
from accel.codec import stream_index
from accel.codec.engines import Pixels
from accel.planning import columns
from accel.planning.order import Steps, parts
from accel.planning.plan import Plan, plans_of
from accel.recipes.options import Selection
from accel.recipes.recipe import Recipe, Source
from accel.recipes.rows import Pictures, Rows
from accel.recipes.sources import PicturesApart
from accel.runtime.memo import cached, planes
from accel.runtime.memo.result_entries import ResultSpec, prefix_of, reference_of, result_entry_in, variant
from accel.runtime.memo.result_lookup import BatchLookup
from accel.runtime.memo.result_pixels import Compute, StoredResults, on_device
from accel.system import counters
from accel.system.memory import Key

Run = Callable[[Selection, Sequence[Plan]], list[Tensor | Exception]]
"""Runs plans on a backend, with results on the host."""

ResultBlock = tuple[Sequence[int], Pixels]
"""The numbers of images, and the pixels of their results, side by side."""


def applied(recipes: Sequence[Recipe], backend: Backend, run: Run, compute: Compute) -> Sequence[Recipe]:
    """Let recipes begin with pixels that a cache has, or with results that are made, and kept there.

    Args:
        backend: makes the results. run: runs its plans, with results on the host.
        compute: computes the pixels of a recipe, in place of a damaged entry.
    """
    batch = BatchLookup(recipes, compute)
    if batch.uncached:
        planes.mark_affordable(batch.sources, np.array(batch.uncached, np.int64), batch.regions())
    made = _made(batch, backend, run) if batch.missing else []
    for each in made:
        _keep(batch, *each)
    return _after(batch, made) if batch.found or made else recipes


# -- compute ------------------------------------------------------------------------------------------------


def _made(batch: BatchLookup, backend: Backend, run: Run) -> list[ResultBlock]:
    """Make the results that are wanted; return those of each plan, without those of files that cannot be decoded:
    running their recipes will raise the error."""
    plans = _plans(batch, [*batch.missing], backend)
    # indexes are useful for files that another pipeline has decoded, and for those that will be decoded again
    again = any(key is None for key, _ in batch.missing.values())
    selection = strict(batch.selection, indexed=again or stream_index.knows(batch.file_key(next(iter(batch.missing)))))
    since = process_time()
    done = run(selection, [plan for _, plan in plans])
    _add_saving(batch, process_time() - since)
    found = [(numbers, values) for (numbers, _), values in zip(plans, done, strict=True)]
    failed = [numbers for numbers, values in found if len(numbers) > 1 and not isinstance(values, Tensor)]
    if failed:  # at least one of each is damaged; the others are kept
        alone = [number for numbers in failed for number in numbers]
        single = [plan for number in alone for _, plan in _one_by_one(batch, [number])]
        found += [([number], values) for number, values in zip(alone, run(selection, single), strict=True)]
    return [(numbers, _in_memory(values)) for numbers, values in found if isinstance(values, Tensor)]


def _plans(batch: BatchLookup, numbers: Sequence[int], backend: Backend) -> list[tuple[Sequence[int], Plan]]:
    """Interleaved plans of images of any sizes, each with the images' numbers."""
    rows = batch.rows_before(numbers) or Rows.of([batch.recipe_of(number) for number in numbers])
    if rows is not None:
        planned = columns.plan_apart(rows) if backend.runs_apart else columns.plan(rows, interleaved=True)
        if planned is not None:
            return [(numbers, planned)]
    return _one_by_one(batch, numbers)


def _one_by_one(batch: BatchLookup, numbers: Sequence[int]) -> list[tuple[Sequence[int], Plan]]:
    given = [(source, *parts(steps)) for source, steps in map(batch.recipe_of, numbers)]
    return [([numbers[each] for each in places], plan) for plan, places in plans_of(given, (True,) * len(given))]


@lru_cache(maxsize=16)
def strict(selection: Selection, *, indexed: bool) -> Selection:
    """The same selection, except that a damaged file is an error, as a black image must not be kept.

    ``indexed``: whether it uses stream indexes.
    """
    options = selection.options
    cache = options.cache if indexed else None
    return selection._replace(options=dataclasses.replace(options, on_error="raise", cache=cache))


def _add_saving(batch: BatchLookup, seconds: float) -> None:
    """Record the time that making all results took, as what they save (less reading them)."""
    sizes: dict[int, int] = {}
    for key, kind in batch.missing.values():
        if key is not None:
            sizes[kind.shelf] = sizes.get(kind.shelf, 0) + kind.size
    whole = sum([kind.size for _, kind in batch.missing.values()])
    for shelf, own in sizes.items():
        batch.in_use.worth.add_result(shelf, 1e6 * seconds * own / whole, own)


def _in_memory(values: Tensor) -> Pixels:
    """Interleaved pixels as one flat array, in their order in memory."""
    pixels = values.numpy() if values.ndim == 1 else values.permute(0, 2, 3, 1).numpy()
    return pixels.reshape(-1)


# -- keep ---------------------------------------------------------------------------------------------------


def _keep(batch: BatchLookup, numbers: Sequence[int], pixels: Pixels) -> None:
    """Keep the results that have keys."""
    shelves: dict[int, dict[Key | bytes, tuple[int, int, ResultSpec]]] = {}
    for number, begin, kind in _places(batch, numbers):
        if (key := batch.missing[number].key) is not None:
            shelves.setdefault(kind.shelf, {}).setdefault(key, (number, begin, kind))
    for shelf, own in shelves.items():
        mark, headers = cached.tag(), batch.headers([number for number, *_ in own.values()])
        files, begins = [], []
        for (key, (_, begin, kind)), header in zip(own.items(), headers, strict=True):
            if header is not None and kind.meta is not None:
                files.append((key, header, mark + kind.meta, kind.ends))
                begins.append(begin)
        counters.count(counters.RESULTS, sum(batch.in_use.put_all(files, shelf, pixels.data, begins)))


def _places(batch: BatchLookup, numbers: Sequence[int]) -> list[tuple[int, int, ResultSpec]]:
    """Where the pixels of each result begin, side by side, and its kind."""
    found, begin = [], 0
    for number in numbers:
        kind = batch.missing[number].kind
        found.append((number, begin, kind))
        begin += kind.size
    return found


# -- begin with results -------------------------------------------------------------------------------------


def _after(batch: BatchLookup, made: Sequence[ResultBlock]) -> Sequence[Recipe]:
    """The recipes that begin with the results that were found or made."""
    recipes, rows = batch.recipes, batch.rows
    lengths = {number: own.length for number, own in batch.found.items()}
    lengths |= {number: batch.missing[number].kind.length for numbers, _ in made for number in numbers}
    if rows is not None and len(lengths) == len(batch.known):
        given = [lengths[number] for number in range(len(lengths))]
        halves = batch.halves if given == batch.lengths else batch.split(given)
        if halves is not None:
            _, structure = halves
            sources: Sequence[Source] | None = _sources(batch, made)
            numbers = rows.numbers[:, : structure.columns]
            if backend_of(batch.selection).devices:
                sources = on_device(_sources(batch, made), structure, numbers[0].tolist())
            if sources is not None:
                return Rows(sources, structure, numbers)
    after = list(recipes)
    for number, source in _each(batch, made).items():
        on_pixels, on_values, tail = parts(recipes[number].steps)
        after[number] = Recipe(source, (*on_pixels[lengths[number] :], *on_values, *tail))
    return after


def _sources(batch: BatchLookup, made: Sequence[ResultBlock]) -> Sequence[Source]:
    """The results of all images: unread, or in one piece of memory, if they are of one mode."""
    count = len(batch.known)
    if not made and len({own.raw.mode for own in batch.found.values()}) == 1:
        found = [batch.found[number] for number in range(count)]
        return StoredResults(found, batch.known[0].cache, batch.selection, batch.result)
    whole = _in_one_piece(batch, made[0][1]) if len(made) == 1 and [*made[0][0]] == [*range(count)] else None
    return whole or [source for _, source in sorted(_each(batch, made).items())]


def _in_one_piece(batch: BatchLookup, pixels: Pixels) -> Pictures | PicturesApart | None:
    """The results of all images, made by one plan; None if they are of several modes."""
    raws, name = [kind.raw for _, kind in batch.missing.values()], "results that a cache takes"
    _, height, mode, _ = raws[0]
    if raws.count(raws[0]) == len(raws):
        shape = (len(raws), height, -1, 3) if mode == "RGB" else (len(raws), height, -1)
        return Pictures(pixels.reshape(shape), name, batch.selection)
    if any(raw.mode != mode for raw in raws):
        return None
    places = [(begin, kind.raw.height, kind.raw.width) for _, begin, kind in _places(batch, range(len(raws)))]
    return PicturesApart(pixels, np.array(places, np.int64), mode, name, batch.selection)


def _each(batch: BatchLookup, made: Sequence[ResultBlock]) -> dict[int, Source]:
    """The results that were found or made, each as a source."""
    found: dict[int, Source] = {number: batch.result(number, own) for number, own in batch.found.items()}
    for numbers, pixels in made:
        for number, begin, kind in _places(batch, numbers):
            content, name = pixels[begin : begin + kind.size].data, batch.sources[number].name
            found[number] = Source(content, kind.raw, name, batch.selection)
    return found


# -- explain ------------------------------------------------------------------------------------------------


def described(recipe: Recipe) -> Iterator[tuple[Entry, Steps | None]]:
    """The cached entries that an image's recipe may begin with, and the steps that each is the result of; None for
    planes."""
    source, on_pixels = recipe.source, parts(recipe.steps)[0]
    known, reference = source.cached, reference_of(source.header)
    if known is None or source.key is None:
        return
    prefix, entries = prefix_of(reference, on_pixels), [known.result]
    for count in range(len(on_pixels), 0, -1):
        file = known.cache.look(
            variant(cached.place(source.key, source.header), prefix_of(reference, on_pixels[:count]))
        )
        entries += [] if file is None else [file.entries.get(RESULT)]
    for entry in (*entries, known.pixels):
        if (found := result_entry_in([entry], prefix)) is not None:
            yield found.entry, on_pixels[: found.length]
    if known.planes is not None:
        yield known.planes, None
